"""The command `report`."""

import shutil
from pathlib import Path

from vmtoll.commands.conclude import conclude
from vmtoll.commands.convert import convert_run
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument, RunOutputOption
from vmtoll.model.errors import UserError

describe("report", "vmtoll report results/latest", "vmtoll report results/latest --json")


def report(folder: RunArgument, output: RunOutputOption = None, as_json: JsonOption = False) -> None:
    """Write the report of a run again: analysis.json, report.html, trials.csv, trials.ods.

    With --output, the run is copied there first, without the load tools' raw output.
    """
    from vmtoll.commands.count import show_count  # noqa: PLC0415
    from vmtoll.counting.record import is_count  # noqa: PLC0415
    from vmtoll.counting.record import read as read_count  # noqa: PLC0415
    from vmtoll.publish.seal import check_writable  # noqa: PLC0415

    check_writable(output or folder, "write elsewhere: --output FOLDER")
    if is_count(folder):
        if output:
            raise UserError(f"{folder}: a count of instructions; copy the folder, then leave out --output")
        show_count(read_count(folder), as_json=as_json, is_written=True)
        return
    conclude(_copy_run(folder, output) if output else folder).show(as_json=as_json)


def _copy_run(folder: Path, output: Path) -> Path:
    """Copy a run, or what a bundle has of one, to a new folder; returns it. Raises LoadError for a damaged bundle."""
    from vmtoll.files import replacing  # noqa: PLC0415
    from vmtoll.publish.bundle import open_run  # noqa: PLC0415 (loads the analysis)
    from vmtoll.publish.package import DESCRIPTION  # noqa: PLC0415
    from vmtoll.publish.seal import is_bundle  # noqa: PLC0415
    from vmtoll.runs.folder import SUMS  # noqa: PLC0415

    if output.exists():
        raise UserError(f"--output {output}: exists; give a new folder, for the run is copied there")
    open_run(folder)
    left_out = (SUMS, *DESCRIPTION) if is_bundle(folder) else ("raw",)
    with replacing(output) as draft:
        shutil.copytree(folder, draft, ignore=shutil.ignore_patterns(*left_out))
        convert_run(draft)  # a bundle may be of an older schema
    return output
