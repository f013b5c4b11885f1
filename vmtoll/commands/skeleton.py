"""The command line without its commands: names, options and what completes their values, kept in completion.json.

A shell asks for completions at each press of a key. To load the commands takes a second, this a fifth of it.
`scripts/reference` writes the file.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from vmtoll.commands import values
from vmtoll.commands.help import COMMAND_LINE, command_line


def described(command: TyperCommand | TyperGroup, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the words of a command and of all below it, each with its parameters, as JSON."""
    params = [_described(param) for param in command.params if param.name not in _OF_TYPER]
    yield name, {"help": (command.help or "").partition("\n")[0], "params": params}
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for word in command.list_commands(context):
            yield from described(command.get_command(context, word), f"{name} {word}".strip())  # type: ignore[arg-type]


_OF_TYPER = {"install_completion", "show_completion"}


def _described(param: Any) -> dict[str, Any]:
    is_argument = isinstance(param, TyperArgument)
    document: dict[str, Any] = {
        "names": [param.name] if is_argument else param.opts,
        "kind": "argument" if is_argument else "flag" if param.is_flag else "option",
        "help": param.help or "",
        "many": param.nargs == -1 or bool(getattr(param, "multiple", False)),
    }
    if choices := param.type_descriptor.choices:
        document["choices"] = [str(getattr(choice, "value", choice)) for choice in choices]
    if completion := param._custom_shell_complete:  # the function of `values`, behind Typer's wrappers
        document["values"] = inspect.unwrap(inspect.getclosurevars(completion).nonlocals["autocompletion"]).__name__
    return document


def write(command: TyperCommand | TyperGroup) -> None:
    """Write completion.json, a line for each command."""
    lines = (f"{json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}" for name, each in described(command))
    COMMAND_LINE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def complete() -> NoReturn:
    """Answer a shell that asks for completions, by Typer's protocol."""
    app(command_line())(prog_name="vmtoll")
    raise SystemExit


def app(commands: Mapping[str, Mapping[str, Any]]) -> typer.Typer:
    """Return a command line whose commands do nothing, as `described` has it: a group comes before its commands."""
    groups: dict[str, typer.Typer] = {}
    for name, command in commands.items():
        group, _, word = name.rpartition(" ")
        function, text = _function(command["params"]), command["help"]
        if any(other.startswith(f"{name} ".lstrip()) for other in commands if other != name):
            groups[name] = typer.Typer(help=text)
            groups[name].callback()(function)
            if name:
                groups[group].add_typer(groups[name], name=word, help=text)
        else:
            groups[group].command(word, help=text)(function)
    return groups[""]


def _function(params: list[Mapping[str, Any]]) -> Callable[..., None]:
    """A function with these parameters, as Typer reads them."""

    def command(**_: Any) -> None:
        pass

    made = [_parameter(f"p{number}", param) for number, param in enumerate(params)]
    command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in made}
    return command


def _parameter(name: str, param: Mapping[str, Any]) -> inspect.Parameter:
    kind = bool if param["kind"] == "flag" else list[str] if param["many"] else str
    completion = None if kind is bool else _completion(param)
    default: Any
    if param["kind"] == "argument":
        default = typer.Argument(None, help=param["help"], autocompletion=completion)
    else:
        unset = False if kind is bool else None
        default = typer.Option(unset, *param["names"], help=param["help"], autocompletion=completion)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _completion(param: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """What completes a parameter; nothing where the shell itself can, as with names of files."""
    choices = param.get("choices", [])

    def chosen(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return getattr(values, param["values"]) if "values" in param else chosen
