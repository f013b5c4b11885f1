"""What a shell is told of the command line is the command line."""

import inspect
import json

import typer.main
from typer.core import TyperGroup

from vmtoll.cli import app
from vmtoll.commands import skeleton, values


def test_completion_json_describes_the_commands() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    kept = json.loads(skeleton.FILE.read_text(encoding="utf-8"))
    assert kept == skeleton.described(program), "scripts/reference writes it"


def test_the_skeleton_is_described_as_what_it_was_made_of() -> None:
    kept = json.loads(skeleton.FILE.read_text(encoding="utf-8"))
    made = typer.main.get_command(skeleton.app(kept))
    assert isinstance(made, TyperGroup)
    again = skeleton.described(made)
    assert set(again["commands"]) == set(kept["commands"])
    for name, command in kept["commands"].items():
        params = [param for param in command["params"] if param["kind"] != "argument"]
        others = [param for param in again["commands"][name]["params"] if param["kind"] != "argument"]
        assert [(p["names"], p["kind"], p["many"]) for p in others] == [
            (p["names"], p["kind"], p["many"]) for p in params
        ]


def test_every_kind_of_value_completes_something() -> None:
    functions = {name for name, each in inspect.getmembers(values, inspect.isfunction) if not name.startswith("_")}
    used = {line.split('"')[3] for line in skeleton.FILE.read_text().splitlines() if '"values"' in line}
    assert used == {name for name in functions if inspect.getmodule(getattr(values, name)) is values} - {"user_folder"}
