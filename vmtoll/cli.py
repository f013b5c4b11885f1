"""Measures what virtualization, or any other change, costs a web service."""

import codecs
import errno
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

from vmtoll.commands.help import ERROR, OWN_EXITS, CliCommand, CommandGroup, command_line, describe, epilog
from vmtoll.model.errors import RunInterruptedError, VmtollError

MISUSED, INTERRUPTED, UNREAD = 2, 130, 141  # exit codes; the last two as for a program that SIGINT or SIGPIPE ends


# Panel → command → the module that has it, and where its name differs, what it is called there. A command's module is
# loaded when the command is typed: all of them take most of a second.
_PANELS: Mapping[str, Mapping[str, str]] = {
    "Begin": {"init": "init", "lab": "lab:app"},
    "Measure": {
        "demo": "demo", "run": "run", "ab": "ab", "measure-service": "measure_service", "bisect": "bisect",
        "judge": "judge", "count": "count", "watch": "watch", "list": "list:list_names", "campaign": "campaign:app",
    },
    "Read": {
        "show": "show", "explain": "explain", "report": "report", "notebook": "notebook", "site": "site",
        "replication": "replication", "partition": "campaign:partition", "convert": "convert",
    },
    "Plan": {"capacity": "capacity", "workload": "workload:app"},
    "Share": {"publish": "publish", "compare": "compare", "replay": "replay"},
    "Hosts": {
        "preflight": "preflight", "provision": "provision", "status": "status", "unprovision": "status:unprovision",
        "diagnose": "diagnose", "tune": "tuning:tune", "untune": "tuning:untune",
    },
}  # fmt: skip
_PANEL_OF = {name: panel for panel, commands in _PANELS.items() for name in commands}


@cache
def _command(name: str) -> Any:
    """Load a command."""
    panel = _PANEL_OF[name]
    module, _, attribute = _PANELS[panel][name].partition(":")
    function_or_group = getattr(import_module(f"vmtoll.commands.{module}"), attribute or module)
    if not isinstance(function_or_group, typer.Typer):
        program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        program.command(name, cls=CliCommand, rich_help_panel=panel, epilog=epilog(name))(function_or_group)
        return get_command(program)
    group = get_group(function_or_group)
    group.name = name
    group.rich_help_panel = panel
    return group


def load(name: str) -> None:
    """Load the module of a command. Does nothing for another word."""
    if name in _PANEL_OF:
        _command(name)


class _Program(CommandGroup):
    """The program itself: lists commands in the order of the panels, and loads those that are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_PANEL_OF)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in _PANEL_OF else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help. It has a line for each command, which completion.json has too, and loads none of them."""
        lines, listing = command_line(), copy(self)

        def listed(ctx: Any, cmd_name: str) -> Any:
            return TyperCommand(cmd_name, help=lines[cmd_name]["help"], rich_help_panel=_PANEL_OF[cmd_name])

        listing.get_command = listed  # type: ignore[method-assign]
        super(_Program, listing).format_help(ctx, formatter)

    @property
    def epilog(self) -> str:
        """Examples, and the exit codes that all commands share."""
        return describe("", "vmtoll demo", "vmtoll list", "vmtoll run tails", "vmtoll show results/latest")

    @epilog.setter
    def epilog(self, _: str | None) -> None:
        """Click's constructor sets it, to nothing."""


app = typer.Typer(
    cls=_Program,
    help=__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

# Errors that users can fix: a full disk, a missing file, a folder that cannot be written, a limit of the system.
_FOR_THE_USER = {
    errno.EACCES, errno.EBUSY, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ELOOP,
    errno.EMFILE, errno.ENAMETOOLONG, errno.ENFILE, errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY,
    errno.EPERM, errno.EROFS,
}  # fmt: skip
# The command-line parser's error: an unknown option, a missing argument, a value that is not allowed.
_UsageError: Any = typer.BadParameter.__bases__[0]


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"vmtoll {version('vmtoll')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def _typed() -> object:
    """Run the command that the user typed; return an exit code, or None."""
    return app(standalone_mode=False)


def main(command: Callable[[], object] = _typed) -> NoReturn:
    """Run the command and exit. An error that the user can fix gives one message and exit code 2, never a traceback.

    A command whose exit code is a verdict exits with ERROR on any error.
    """
    _print_in_any_encoding()
    try:
        code = _exit_code(command)
    except Exception:
        if not _is_judged():
            raise
        traceback.print_exc()
        code = ERROR
    if code == MISUSED and _is_judged():
        code = ERROR
    if _is_unread():
        code = UNREAD
    raise SystemExit(code)


def _is_judged() -> bool:
    """Return whether the command's exit code is a verdict, as for `git bisect run`."""
    return OWN_EXITS.get(" ".join(sys.argv[1:2]), {}).get(MISUSED) == ""


def _print_in_any_encoding() -> None:
    r"""Print characters that the encoding of stdout or stderr lacks as JSON escapes (\u00d7), instead of failing."""
    codecs.register_error(
        "vmtoll",
        lambda error: (json.dumps(error.object[error.start : error.end])[1:-1], error.end),  # type: ignore[attr-defined]
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="vmtoll")


def _exit_code(command: Callable[[], object]) -> int:
    """Run the command; return its exit code. Typer turns ^C and a closed pipe into its own exits."""
    code = 0
    ended_by: BaseException | None = None
    try:
        answer = command()
        code = answer if isinstance(answer, int) else 0
    except _UsageError as error:
        return _misused(error)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        code, ended_by = UNREAD if isinstance(end.__context__, BrokenPipeError) else end.code or 0, end
    except VmtollError as error:
        return _failed(str(error))
    except OSError as error:
        if error.errno not in _FOR_THE_USER:
            raise
        # Without a file name the error is of an open stream: a file being written, or stdout.
        return _failed(f"{error.filename or 'cannot read or write'}: {_cause(error)}")
    except (KeyboardInterrupt, typer.Abort) as error:
        code, ended_by = INTERRUPTED, error
    except Exception as error:
        if not any(isinstance(cause, KeyboardInterrupt) for cause in _chain(error)):
            raise
        code, ended_by = INTERRUPTED, error
    return _failed(f"interrupted{_kept(ended_by)}", INTERRUPTED) if code == INTERRUPTED else code


def _kept(error: BaseException | None) -> str:
    """The end of the message on an interrupted run: what is kept, how to resume it; empty where nothing is kept."""
    folder = next((cause.args[0] for cause in _chain(error) if isinstance(cause, RunInterruptedError)), None)
    if folder is None:
        return ""
    if sys.argv[1:2] in (["campaign"], ["bisect"]):
        return "; the results so far are kept: run the same command again to continue"
    command = "" if sys.argv[1:2] in (["replay"], ["ab"]) else f"vmtoll run {folder.parent.name} "
    return f"; the results so far are kept: continue with {command}--resume {folder}"


def _cause(error: OSError) -> str | None:
    """The system's text for an error; a clearer text where a file exists in place of a folder."""
    if isinstance(error, FileExistsError) and error.filename and Path(os.fsdecode(error.filename)).is_file():
        return "is a file, not a folder"
    return error.strerror


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes: a library that is loading may turn ^C into its own error."""
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _misused(error: Any) -> int:
    """Print what is wrong with the command line, and where to read on; the help for a command without arguments.

    Returns the exit code.
    """
    message, command = error.format_message().strip().rstrip("."), error.ctx.command_path if error.ctx else "vmtoll"
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return int(error.exit_code)
    text = " ".join(message.replace("Value error, ", "").replace("Input should be", "must be").split())
    text = text.partition(", unable to parse")[0]
    return _failed(f"{text[:1].lower()}{text[1:]}; see `{command} --help`")


def _failed(message: str, code: int = MISUSED) -> int:
    with suppress(BrokenPipeError):
        print(f"vmtoll: {message}", file=sys.stderr, flush=True)
    return code


def _is_unread() -> bool:
    """Return whether the reader of stdout or stderr is gone. Redirects that stream to /dev/null, or Python would
    complain at exit.
    """
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
