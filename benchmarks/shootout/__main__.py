"""`python -m benchmarks.shootout pilot|record|judge|hyperfine`: see the package."""

import argparse
import signal
import sys
from functools import partial
from pathlib import Path

import benchmarks.shootout as package
from benchmarks.shootout.plan import FOLDER, engine_digest, read_plan
from benchmarks.shootout.record import read_pages, record_all
from vmtoll.model.errors import UserError

say = partial(print, flush=True)


def main() -> int:
    """Run the command that was typed; return the exit code, 75 if the same command must be run again."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shootout", description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("command", choices=["pilot", "record", "judge", "hyperfine"])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="of plan and recordings")
    parser.add_argument(
        "--minutes", type=float, help="stop cleanly after this many minutes; run the same command again to continue"
    )
    parser.add_argument("--cpu", type=int, help="pilot: the only CPU of loads and disturbances (default: any)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))  # ends the page's processes; the page is recorded again
    try:
        return _run(options.command, options.folder, options.minutes, options.cpu)
    except UserError as error:
        print(f"shootout: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 75


def _run(command: str, folder: Path, minutes: float | None, cpu: int | None) -> int:
    if command == "pilot":
        from benchmarks.shootout.pilot import pilot  # noqa: PLC0415 (loads scipy)

        if (folder / "plan.json").exists():
            say(f"{folder / 'plan.json'} is written; record the pages of it")
            return 0
        return 0 if pilot(folder, cpu, minutes, say) else 75
    if command == "hyperfine":
        from benchmarks.shootout.hyperfine import compare  # noqa: PLC0415

        return 0 if compare(folder, minutes, say) else 75
    plan, pages = read_plan(folder / "plan.json"), folder / "pages.jsonl.gz"
    if command == "record":
        return 0 if record_all(plan, pages, minutes, say) else 75
    from benchmarks.shootout import table  # noqa: PLC0415

    if plan.engine != engine_digest():
        raise UserError("the engine is not the one of the plan; a changed engine needs new recordings")
    recorded = read_pages(pages)
    if len(recorded) < len(plan.pages()):
        raise UserError(f"{len(recorded)} of {len(plan.pages())} pages are recorded; record the others first")
    rows = list(table.counts(recorded, say))
    print(table.rules_table(rows), table.answers_table(rows), table.truth_table(table.truths(recorded)), sep="\n\n")
    table.write(plan, recorded, rows, folder, table.DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
