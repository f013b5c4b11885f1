"""The commands of the program, to check that a line which documents show is one that it takes."""

from collections.abc import Iterator, Sequence

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from vmtoll.cli import app


def _commands(group: TyperGroup, name: str = "") -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    """The group itself and all that is in it, by what a user types."""
    yield name, group
    context = typer.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{name} {word}".strip())
        elif isinstance(command, TyperCommand):
            yield f"{name} {word}".strip(), command


PROGRAM = typer.main.get_command(app)
assert isinstance(PROGRAM, TyperGroup)
COMMANDS = dict(_commands(PROGRAM))


def parse(words: Sequence[str]) -> None:
    """Parse what follows `vmtoll` as the program would, without running it. Raises UsageError for what it refuses."""
    longest = max((each for each in COMMANDS if list(words[: len(each.split())]) == each.split()), key=len)
    command = COMMANDS[longest]
    context = command.make_context(longest, [], resilient_parsing=True)  # else it asks for required arguments
    context.resilient_parsing = False  # else the parser keeps quiet about unknown options
    command.make_parser(context).parse_args([*words[len(longest.split()) :]])
