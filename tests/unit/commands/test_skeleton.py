"""What a shell is told of the command line, and what `vmtoll --help` lists, is the command line."""

import inspect
import json
import subprocess
import sys

import typer.main
from typer.core import TyperGroup

from vmtoll.cli import app
from vmtoll.commands import skeleton, values
from vmtoll.commands.help import command_line


def test_completion_json_describes_the_commands() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    assert command_line() == json.loads(json.dumps(dict(skeleton.described(program)))), "scripts/reference writes it"


def test_the_skeleton_is_described_as_what_it_was_made_of() -> None:
    kept = command_line()
    made = typer.main.get_command(skeleton.app(kept))
    assert isinstance(made, TyperGroup)
    again = dict(skeleton.described(made))
    assert set(again) == set(kept)
    for name, command in kept.items():
        options, others = (
            [(p["names"], p["kind"], p["many"]) for p in each["params"] if p["kind"] != "argument"]
            for each in (command, again[name])
        )
        assert others == options


def test_every_kind_of_value_completes_something() -> None:
    functions = {name for name, each in inspect.getmembers(values, inspect.isfunction) if not name.startswith("_")}
    used = {param["values"] for each in command_line().values() for param in each["params"] if "values" in param}
    assert used == {name for name in functions if inspect.getmodule(getattr(values, name)) is values} - {"user_folder"}


def test_the_programs_help_loads_no_command() -> None:
    code = """
import sys
from vmtoll.cli import app
try:
    app(["--help"])
except SystemExit:
    print(sorted(name for name in sys.modules if name.startswith("vmtoll.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "measure-service" in done.stdout, "every command has its line"
    loaded = ["vmtoll.cli", "vmtoll.commands", "vmtoll.commands.help", "vmtoll.model", "vmtoll.model.errors"]
    assert done.stdout.splitlines()[-1] == str(loaded)
