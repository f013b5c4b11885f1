"""What `--help` has of each command: examples that the command takes, exit codes, no value for a flag."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from tests.support.command_line import COMMANDS, PROGRAM, parse
from vmtoll.cli import app
from vmtoll.commands.help import ENDED, EXAMPLES, EXITS, OWN_EXITS


def test_every_command_has_an_example() -> None:
    assert PROGRAM.epilog
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_only_options_that_its_command_has(name: str) -> None:
    for example in EXAMPLES[name]:
        assert example in (COMMANDS[name].epilog or "")
        words = shlex.split(example)
        parse(words[words.index("vmtoll") + 1 :])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_has_exit_codes_and_no_value_for_a_flag(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "1000", "NO_COLOR": "1"})
    assert "<bool>" not in done.stdout
    (line,) = re.findall(r"Exit codes: (.*)\.\s*$", done.stdout, re.MULTILINE)
    own = OWN_EXITS.get(name, {}) if name else ENDED
    never = {code for code, text in own.items() if not text}
    shown = [int(code) for code in re.findall(r"(?:^|; )(\d+) ", line)]
    assert shown == sorted({*EXITS, *own} - never)
    assert ("others: see `vmtoll COMMAND --help`" in line) is (not name)


def test_codes_of_their_own_belong_to_commands() -> None:
    assert set(OWN_EXITS) < set(COMMANDS)


def test_the_panels_have_the_order_of_the_work() -> None:
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "NO_COLOR": "1"})
    panels = re.findall(r"╭─ (\w+) ", done.stdout)
    assert panels == ["Options", "Begin", "Measure", "Read", "Plan", "Share", "Hosts"]
