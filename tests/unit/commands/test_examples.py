"""The examples below the help of each verb."""

import shlex
from collections.abc import Iterator

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from vmtoll.cli import app
from vmtoll.commands.examples import EXAMPLES


def commands(group: TyperGroup, prefix: str = "") -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{prefix}{name} ")
        elif isinstance(command, TyperCommand):
            yield f"{prefix}{name}", command


GROUP = typer.main.get_command(app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = dict(commands(GROUP))


def test_every_verb_has_an_example() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("verb", EXAMPLES)
def test_an_example_has_only_options_that_its_verb_has(verb: str) -> None:
    command = COMMANDS[verb]
    for example in EXAMPLES[verb]:
        assert example in (command.epilog or "")
        words = shlex.split(example.removeprefix(f"vmtoll {verb}"))
        context = command.make_context(verb, [], resilient_parsing=True)
        command.make_parser(context).parse_args(words)
