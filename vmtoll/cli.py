"""vmtoll: what a KVM guest costs against bare metal, for a web workload, with evidence."""

import errno
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from vmtoll.commands import campaign, lab, tuning, workload
from vmtoll.commands.capacity import capacity
from vmtoll.commands.compare import compare
from vmtoll.commands.demo import demo
from vmtoll.commands.diagnose import diagnose
from vmtoll.commands.examples import epilog
from vmtoll.commands.list import list_names
from vmtoll.commands.notebook import notebook
from vmtoll.commands.preflight import preflight
from vmtoll.commands.provision import provision
from vmtoll.commands.publish import publish
from vmtoll.commands.replay import replay
from vmtoll.commands.replication import replication
from vmtoll.commands.report import report
from vmtoll.commands.run import run
from vmtoll.commands.site import site
from vmtoll.model.errors import VmtollError

INTERRUPTED, UNREAD = 130, 141  # exit codes, as of a program that SIGINT or SIGPIPE ends
_EPILOG = (
    "Exit codes: 0 done; 1 a check failed; 2 what was asked cannot be done, and why; 3 not reproduced; 130 ^C; "
    "141 the reader of the output has ended (`| head`)."
)
app = typer.Typer(
    help=__doc__, epilog=_EPILOG, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)

# What a full disk, a missing file or a folder that cannot be written answers: the user's to mend, and no fault of ours.
_FOR_THE_USER = {
    errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT,
    errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip


def _print_version(asked: bool) -> None:
    if asked:
        print(f"vmtoll {version('vmtoll')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


_GROUPS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Measure": {"demo": demo, "run": run, "list": list_names},
    "Read": {"report": report, "notebook": notebook, "site": site, "replication": replication},
    "Plan": {"capacity": capacity},
    "Share": {"publish": publish, "compare": compare, "replay": replay},
    "Hosts": {
        "preflight": preflight, "provision": provision, "diagnose": diagnose, "tune": tuning.tune,
        "untune": tuning.untune,
    },
    "Campaigns over several test beds": {
        "campaign": campaign.campaign, "campaign-report": campaign.campaign_report, "partition": campaign.partition,
    },
}  # fmt: skip
for _panel, _verbs in _GROUPS.items():
    for _name, _verb in _verbs.items():
        app.command(_name, rich_help_panel=_panel, epilog=epilog(_name))(_verb)
app.add_typer(lab.app, name="lab", rich_help_panel="Measure")
app.add_typer(workload.app, name="workload", rich_help_panel="Plan")


def main(command: Callable[[], object] = app) -> NoReturn:
    """Entry point: an error that the user can act on is one message and exit code 2, never a traceback."""
    code = _exit_code(command)
    if _is_unread():
        code = UNREAD
    raise SystemExit(code)


def _exit_code(command: Callable[[], object]) -> int:
    """Run the command; its exit code. Typer turns ^C and a closed pipe into exits of its own."""
    code = 0
    try:
        command()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        code = UNREAD if isinstance(end.__context__, BrokenPipeError) else end.code or 0
    except VmtollError as error:
        return _failed(str(error))
    except OSError as error:
        if error.errno not in _FOR_THE_USER:
            raise
        return _failed(": ".join(str(part) for part in (error.filename, error.strerror) if part))
    except KeyboardInterrupt:
        code = INTERRUPTED
    return _failed("interrupted; what was measured is kept", INTERRUPTED) if code == INTERRUPTED else code


def _failed(message: str, code: int = 2) -> int:
    with suppress(BrokenPipeError):
        print(f"vmtoll: {message}", file=sys.stderr, flush=True)
    return code


def _is_unread() -> bool:
    """Whether the reader of stdout or stderr is gone; that stream then leads nowhere, or Python would complain last."""
    unread = False
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except BrokenPipeError:
            unread = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return unread
