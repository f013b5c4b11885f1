"""The command `explain`: where the time of a guest's exits goes."""

from dataclasses import asdict

from rich.text import Text

from vmtoll.commands.answer import print_json, print_text
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument
from vmtoll.model.errors import UserError

describe("explain", "vmtoll explain results/latest", "vmtoll explain results/latest --json")


def explain(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Print which VM exits cost a guest's extra CPU time: count and µs per request of each reason, and cost per exit.

    For a run of an experiment with `explain: exits`. vmtoll reads the run and writes nothing.
    """
    from vmtoll.analysis.exits import explained_exits  # noqa: PLC0415 (loads the analysis)
    from vmtoll.publish.bundle import open_run  # noqa: PLC0415
    from vmtoll.report.words import exit_lines, exits_text  # noqa: PLC0415

    run = open_run(folder)
    explained = explained_exits(run)
    if not explained:
        has_key = run.manifest.experiment.explain
        why = "no explained trial was measured" if has_key else "its experiment has no `explain: exits`"
        way_out = "see the run's log, or finish it with --resume" if has_key else "add that and run it again"
        raise UserError(f"{folder}: {why}; {way_out} (bundles leave exits out)")
    if as_json:
        rows = [
            {"answer": exits_text(each), **asdict(each), "prices": [price.model_dump() for price in each.prices]}
            for each in explained
        ]
        print_json({"run": run.manifest.run_id, "exits": rows})
        return
    print_text(Text("\n\n".join("\n".join(exit_lines(each)) for each in explained)))
