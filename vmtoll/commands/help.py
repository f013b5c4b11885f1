"""The text of `--help`: a command's description without line breaks, examples, exit codes; no value for a flag."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer import Typer
from typer.core import TyperCommand, TyperGroup

# Command → examples; for a group and for the program itself (no name), those to begin with.
EXAMPLES: dict[str, Sequence[str]] = {}
# Command → its own exit codes; an empty text removes a code of EXITS.
OWN_EXITS: dict[str, Mapping[int, str]] = {}
NOTHING_VALID = 4  # of a command that measures
ERROR = 128  # of a command whose exit code is a verdict: git bisect ends at this code and above
EXITS: Mapping[int, str] = {
    0: "done",
    2: "usage or configuration error (one line on stderr says what to do)",
}
# The whole command line: words of a command → its first line of help and its parameters; vmtoll.commands.skeleton.
COMMAND_LINE = Path(__file__).with_name("completion.json")
# Of any command that something else ended.
ENDED: Mapping[int, str] = {130: "interrupted (^C, SIGTERM)", 141: "broken pipe (`| head`)"}


def command_line() -> dict[str, dict[str, Any]]:
    """Return the content of completion.json, without loading a command."""
    document: dict[str, dict[str, Any]] = json.loads(COMMAND_LINE.read_text(encoding="utf-8"))
    return document


def describe(command: str, *examples: str, exits: Mapping[int, str] | None = None) -> str:
    """Register a command's examples and its own exit codes for its help; return its epilog."""
    EXAMPLES[command] = examples
    if exits:
        OWN_EXITS[command] = exits
    return epilog(command)


def epilog(command: str = "") -> str:
    """The examples as a paragraph and a code block of Markdown, which the terminal shows as lines; the exit codes."""
    examples = EXAMPLES.get(command, ())
    title = [f"Example{'s' * (len(examples) > 1)}:", ""] if examples else []
    return "\n".join([*title, *(f"    {example}" for example in examples), "", f"Exit codes: {_exits(command)}."])


def _exits(command: str) -> str:
    """`0 done; 1 a check failed; …`: the command's own; for the program itself, those that all commands share."""
    codes = {**EXITS, **(OWN_EXITS.get(command, {}) if command else ENDED)}
    texts = "; ".join(f"{code} {text}" for code, text in sorted(codes.items()) if text)
    return texts if command else f"{texts}; others: see `vmtoll COMMAND --help`"


def _unwrapped(text: str | None) -> str:
    """Put each paragraph on one line: the terminal wraps it."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


def _without_values(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""  # else Typer shows `--json <bool>`
    return params


class CliCommand(TyperCommand):
    """Typer's command, with vmtoll's help."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = _unwrapped(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        return (self.help or "").partition("\n")[0]


def subcommand(
    group: Typer, name: str, *examples: str, exits: Mapping[int, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of a group; register its examples and its own exit codes. `name`: all of its words."""
    return group.command(name.partition(" ")[2], cls=CliCommand, epilog=describe(name, *examples, exits=exits))


class CommandGroup(TyperGroup):
    """Typer's group of commands, with vmtoll's help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        return (self.help or "").partition("\n")[0]
