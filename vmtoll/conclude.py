"""What follows a run: its verdict, what people read, and the page over several runs."""

import json
from collections.abc import Sequence
from pathlib import Path

from vmtoll.shell import UserError
from workloads.runner.results import write_durably


def conclude(folder: Path) -> str:
    """Judge a run, write what people read; return where it is and in one sentence what came out. Raises UserError."""
    # Here and not above: it loads scipy and matplotlib, which `--help` should not wait for.
    from analysis.load import LoadError  # noqa: PLC0415
    from analysis.ods import write_ods  # noqa: PLC0415
    from analysis.report import write_report  # noqa: PLC0415
    from analysis.verdict import verdict as judge  # noqa: PLC0415

    try:
        verdict = judge(folder)
        document = folder / "run.json"
        content = json.loads(document.read_text()) | {"verdict": verdict}
        write_durably(document, (json.dumps(content, indent=2) + "\n").encode())
        page, sheet = write_report(folder), write_ods(folder)
    except LoadError as error:
        raise UserError(str(error)) from error
    return f"report: {page}\ntable:  {folder / 'trials.csv'} · {sheet}\n{verdict['sentence']}"


def replication_page(folders: Sequence[Path], output: Path) -> Path:
    """Write one page over the claims of these runs; its path. Raises UserError."""
    from analysis.load import LoadError  # noqa: PLC0415
    from analysis.replication_page import write_page  # noqa: PLC0415

    try:
        return write_page(list(folders), output)
    except LoadError as error:
        raise UserError(str(error)) from error
