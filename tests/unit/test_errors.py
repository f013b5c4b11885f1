"""Every error is one line in one form: `<file or thing>: <key>: what is wrong; what to do`, without a final stop."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtoll.model import errors
from vmtoll.paths import PROJECT

OURS = {name for name, kind in vars(errors).items() if isinstance(kind, type)} | {"ValueError", "BadParameter"}
NAMES = "QMP|Ansible|DuckDB|HdrHistogram|LogFormat|QEMU|KVM|XML|YAML|HTTP|ALPN|IOMMU|TMPDIR|TOOL|PCI|V2"


def template(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may give, with `{}` for each value that is put in."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.BinOp(left=left, right=right):
            yield from (first + second for first in template(left) for second in template(right))
        case ast.IfExp(body=body, orelse=other):
            yield from (*template(body), *template(other))
        case _:
            yield "{}"


def called(function: ast.expr) -> str:
    """The last part of a function's name."""
    return getattr(function, "attr", getattr(function, "id", ""))


def messages(file: Path) -> Iterator[tuple[str, str]]:
    """Where an error is made, and its text."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and node.args and called(node.func) in OURS:
            yield from ((f"{file.relative_to(PROJECT)}:{node.lineno}", text) for text in template(node.args[0]))


def faults(text: str) -> Iterator[str]:
    if "\n" in text:
        yield "more than one line"
    if text.rstrip().endswith((".", "!")):
        yield "a final stop"
    if re.search(rf"(?:^|: |; )(?!(?:{NAMES})\b)[A-Z]", text):
        yield "a capital letter"


def test_every_error_has_the_form() -> None:
    found = [
        f"{where}: {fault}: {text}"
        for file in sorted((PROJECT / "vmtoll").rglob("*.py"))
        for where, text in messages(file)
        for fault in faults(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{}: Link {}: give a rate", "a capital letter"),
        ("the lab is not up.", "a final stop"),
        ("failed:\n{}", "more than one line"),
    ],
)
def test_another_form_is_found(text: str, fault: str) -> None:
    assert fault in list(faults(text))
