"""The command `compare`: two runs or bundles, scenario by scenario."""

from typing import TYPE_CHECKING, Annotated

import typer

from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument, percent
from vmtoll.model.agreement import Status, to_json
from vmtoll.model.errors import UserError

if TYPE_CHECKING:
    from vmtoll.analysis.run import Run

DIFFERS = 3  # exit code; a crash is 1
BetweenRunsOption = Annotated[
    float,
    typer.Option(
        "--between-runs-pct",
        parser=percent,
        metavar="PERCENT",
        help="Standard deviation of the ratio between runs of one machine, in percent, if earlier runs showed it.",
    ),
]


describe(
    "compare",
    "vmtoll compare bundle results/latest",
    "vmtoll compare bundle results/latest --json",
    exits={3: "not reproduced"},
)


def compare(
    first: RunArgument, second: RunArgument, between_runs_pct: BetweenRunsOption = 0.0, as_json: JsonOption = False
) -> None:
    """Compare two runs or bundles: does the second reproduce the first?"""
    from vmtoll.publish.bundle import open_run  # noqa: PLC0415 (loads the analysis)

    if first.resolve() == second.resolve():
        raise UserError(f"{first} and {second} are one folder; give two runs or bundles")
    raise SystemExit(show(open_run(first), open_run(second), between_runs_pct, as_json=as_json))


def show(first: "Run", second: "Run", between_runs_pct: float = 0.0, *, as_json: bool) -> int:
    """Print how two runs compare; return the exit code."""
    from vmtoll.publish.comparison import compare_runs  # noqa: PLC0415
    from vmtoll.report.comparison import lines  # noqa: PLC0415

    result = compare_runs(first, second, between_runs_pct / 100)
    print(to_json(result).decode() if as_json else "\n".join(lines(result)))
    return DIFFERS if result.counts.get(Status.NOT_REPRODUCED) else 0
