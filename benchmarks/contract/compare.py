"""Compare two folders of golden outputs: a unified diff of each file, and the parts that differ."""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST_LINES = 40  # of one file's diff
MOST_CHARACTERS = 400  # of a line: pages and JSON have lines of a megabyte
CONTEXT = 120  # characters before the first difference of a long line


def compare(old: Path, new: Path, parts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the diffs, then one line for each part. `parts`: their names, or none for all."""
    folders = {folder.name for root in (old, new) for folder in root.iterdir() if folder.is_dir()}
    names = sorted(parts or (name for name in folders if not name.startswith(".")))
    for part in names:
        files = _files(old / part), _files(new / part)
        differing: Counter[str] = Counter()
        for name in sorted(files[0].keys() | files[1].keys()):
            before, after = files[0].get(name), files[1].get(name)
            kind = "new" if before is None else "missing" if after is None else "changed"
            if before is not None and after is not None and before.read_bytes() == after.read_bytes():
                continue
            differing[kind] += 1
            yield from _diff(f"{part}/{name}", before, after)
        if differing:
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(differing.items()))
            yield f"part {part}: DIFFERS: {counts}, of {len(files[0])} files"
        elif not files[0]:
            yield f"part {part}: DIFFERS: neither folder has a file of it"
        else:
            yield f"part {part}: equal, {len(files[0])} files"


def _files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def _diff(name: str, before: Path | None, after: Path | None) -> Iterator[str]:
    lines = list(difflib.unified_diff(_lines(before), _lines(after), f"old/{name}", f"new/{name}", n=1, lineterm=""))
    shown = lines[:MOST_LINES]
    at = _first_difference(shown)
    for line in shown:
        yield line if len(line) <= MOST_CHARACTERS else f"{line[0]}…{line[at : at + MOST_CHARACTERS]}…"
    if len(lines) > MOST_LINES:
        yield f"… {len(lines) - MOST_LINES} more lines"
    if not lines:
        yield f"old/{name} and new/{name} differ in bytes that are not text, or one of them is empty"


def _lines(path: Path | None) -> list[str]:
    return [] if path is None else path.read_text("utf-8", errors="backslashreplace").splitlines()


def _first_difference(diff: Sequence[str]) -> int:
    """The character from which long lines are shown: a little before the first removed and added one differ."""
    removed = next((line for line in diff[2:] if line.startswith("-")), "")
    added = next((line for line in diff[2:] if line.startswith("+")), "")
    same = next((i for i, (a, b) in enumerate(zip(removed[1:], added[1:], strict=False)) if a != b), 0)
    return max(1, same + 1 - CONTEXT)
