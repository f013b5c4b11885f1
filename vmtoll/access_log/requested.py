"""The paths that a log's clients asked for, with their queries: the URLs of a service. No other output has them."""

import random
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from vmtoll.access_log.read import database, requests_of
from vmtoll.model.errors import LogError

LINES = 1000  # of the list
_SEED = 1


def requested_paths(logs: Sequence[Path], lines: int = LINES) -> list[str]:
    """Paths of GET requests answered with 200: `lines` of them, every n-th of the requests in the order of their paths,
    so that each path has its share, and one below a line may be missing. In an order drawn from a fixed seed.

    Raises LogError.
    """
    with database() as db:
        counts = requests_of(db, [log.resolve() for log in logs])
    if not counts:
        raise LogError(
            f"{', '.join(map(str, logs))}: no GET request in them was answered with 200; give a list of URLs"
        )
    ends, total = list(accumulate(count for _, count in counts)), sum(count for _, count in counts)
    most, paths, position = min(lines, total), [], 0
    for line in range(most):
        while ends[position] <= (line + 0.5) * total / most:
            position += 1
        paths.append(counts[position][0])
    random.Random(_SEED).shuffle(paths)
    return paths
