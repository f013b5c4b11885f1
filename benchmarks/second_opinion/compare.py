"""Compare the answers of the engine with those of another program: `python -m benchmarks.second_opinion.compare ANSWERS
OTHERS`. Each result must be there in both: words and counts the same, ratios and levels within 1e-9 in logs, all other
numbers within 1e-6 of themselves. Exits with 1 if anything differs.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What names a place, and the input that an answer may repeat.
NAMES = frozenset({"run_id", "scenario", "arm", "metric", "loop", "says", "step", "before", "after", "share"})
IN_LOGS = frozenset({"ratio", "low", "high", "mean_low", "mean_high"})
LOG_TOLERANCE, TOLERANCE = 1e-9, 1e-6


def results(node: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Each result with its place, as `comparisons/0/verdicts/cpu/estimate/low`."""
    if isinstance(node, list | dict):
        for key, child in enumerate(node) if isinstance(node, list) else node.items():
            if key not in NAMES:
                yield from results(child, f"{place}/{key}" if place else str(key))
    else:
        yield place, node


def is_same(place: str, one: Any, other: Any) -> bool:
    """Return whether two results at one place agree."""
    if not isinstance(one, float) and not isinstance(other, float):
        return bool(one == other)
    if not isinstance(one, float | int) or not isinstance(other, float | int):
        return False
    if place.rpartition("/")[2] in IN_LOGS and min(one, other) > 0:
        return abs(math.log(one / other)) <= LOG_TOLERANCE
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12)


def differences(answer: Any, other: Any) -> list[str]:
    """The results that differ or that one side lacks, as `place: answer, other`."""
    ours, theirs = dict(results(answer)), dict(results(other))
    return [
        f"{place}: {ours.get(place, 'missing')}, {theirs.get(place, 'missing')}"
        for place in ours | theirs
        if place not in ours or place not in theirs or not is_same(place, ours[place], theirs[place])
    ]


def main() -> None:
    """Compare all files of both folders."""
    answers, others = map(Path, sys.argv[1:3])
    counts: Counter[str] = Counter()
    for file in sorted(answers.glob("*.json")):
        one, other = (json.loads((folder / file.name).read_text(encoding="utf-8")) for folder in (answers, others))
        found = differences(one, other)
        counts += Counter(files=1, results=len(dict(results(one))), differences=len(found))
        for text in found[:3]:
            print(f"{file.stem}: {text}")
    print(f"{counts['files']} files, {counts['results']} results, {counts['differences']} differ")
    sys.exit(counts["differences"] > 0 or not counts["results"])


if __name__ == "__main__":
    main()
