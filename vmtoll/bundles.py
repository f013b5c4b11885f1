"""The verbs on bundles: publish, compare, replay; and what they print."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.load import LoadError, Run, load_run
from analysis.publish.agreement import NOT_REPRODUCED
from analysis.publish.bundle import ANONYMOUS
from analysis.publish.bundle import publish as write_bundle
from analysis.publish.replication import compare_runs
from analysis.publish.seal import SUMS, digest, verify
from vmtoll.progress import say
from vmtoll.shell import UserError

DIFFERS = 3


def publish(run_dir: Path, output: Path, authors: Sequence[str]) -> None:
    """Write a bundle and say which checksum stands for it."""
    with _mendable():
        folder = write_bundle(run_dir, output, authors or ANONYMOUS, say)
    print(f"bundle: {folder}\n{SUMS}: {digest(folder / SUMS)}")


def open_run(folder: Path) -> Run:
    """A run, or a bundle whose every file is proven to be as it was published. Raises UserError."""
    with _mendable():
        if (folder / SUMS).exists() or (folder / "datapackage.json").exists():
            verify(folder)
        return load_run(folder)


def open_bundle(folder: Path) -> Run:
    """A bundle, proven whole. Raises UserError."""
    with _mendable():
        verify(folder)
        return load_run(folder)


def compare(first: Run, second: Run, *, as_json: bool) -> int:
    """Print how two runs compare; the exit code: 3 when something was not reproduced (a crash is 1), else 0."""
    with _mendable():
        found = compare_runs(first, second)
    print(json.dumps(found, indent=1, ensure_ascii=False) if as_json else "\n".join(_lines(found)))
    return DIFFERS if NOT_REPRODUCED in found["counts"] else 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    for scenario in found["scenarios"]:
        yield f"{scenario['label']} on {scenario['environment']}: {scenario['status']} ({scenario['reason']})"
        for fact in scenario.get("facts", []):
            yield f"    {fact['fact']}: {_short(fact['published'])} → {_short(fact['again'])}"
        for name, one in scenario["metrics"].items():
            texts = " → ".join(dict.fromkeys((one["published"]["text"], one["again"]["text"])))
            yield f"    {name}: {one['status']}: {texts}{_ratios(one)}"
            if one["status"] != scenario["status"]:
                yield f"        {one['reason']}"
        differ = [fact["fact"] for fact in scenario.get("other_differences", [])]
        if differ and not scenario["facts"]:
            yield f"    differs too: {', '.join(differ)}"
    yield ", ".join(f"{count} {status}" for status, count in found["counts"].items())


def _ratios(one: dict[str, Any]) -> str:
    first, second = one["published"]["ratio"], one["again"]["ratio"]
    return f" (guest/metal {first:.3g} → {second:.3g})" if first and second else ""


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 48 else f"{text[:45]}…"


@contextmanager
def _mendable() -> Iterator[None]:
    try:
        yield
    except LoadError as error:
        raise UserError(str(error)) from error
