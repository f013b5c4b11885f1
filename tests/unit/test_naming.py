"""Names and docstrings of the program: nouns of the field, and what a function returns or does."""

import ast
import re
from collections.abc import Iterator

from vmtoll.paths import PLAYBOOKS, PROJECT

VAGUE = frozenset({
    "alike", "asked", "found", "mine", "one", "ours", "own", "place", "said", "theirs", "there", "thing", "told",
    "what", "where", "who", "whose",
})  # fmt: skip
NO_NOUN = re.compile(r"(What|How|Whether|Why|Where|Which|Who|Whose|Those|That|Of|By)\b")


def test_no_local_name_is_vague() -> None:
    assert [at for file, tree in _modules() for at in _vague_names(file, tree)] == []


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    assert [
        f"{file}:{node.body[0].lineno}: {text[:60]}"
        for file, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node) or "")
        and NO_NOUN.match(text)
    ] == []


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in (PROJECT / "vmtoll", PLAYBOOKS / "plugins", PROJECT / "tests" / "support"):
        for path in sorted(folder.rglob("*.py")):
            yield str(path.relative_to(PROJECT)), ast.parse(path.read_text("utf-8"))


def _vague_names(file: str, tree: ast.Module) -> Iterator[str]:
    """Variables and parameters; the fields of a class are no local names."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(item.target) for node in classes for item in node.body if isinstance(item, ast.AnnAssign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            name = node.id
        else:
            continue
        if name in VAGUE:
            yield f"{file}:{node.lineno}: {name}"
