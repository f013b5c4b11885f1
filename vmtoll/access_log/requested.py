"""The paths that a log's clients asked for, with their queries: the URLs of a service. No other output has them."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote

from vmtoll.access_log.read import database, requests_of
from vmtoll.model.errors import LogError

LINES = 1000  # of the list
_SEED = 1
_ABSOLUTE = re.compile(r"(?i)(https?://[^/?#]+)(.*)")  # as proxies and caches log a request
_ESCAPED = re.compile(rb"\\x([0-9A-Fa-f]{2})|\\([\"\\])")  # as nginx and Apache write an octet
_ASCII = "".join(map(chr, range(0x21, 0x7F)))


def requested_paths(logs: Sequence[Path], lines: int = LINES) -> tuple[list[str], int, int]:
    """Paths of GET requests answered with 200: `lines` of them, every n-th of the requests in the order of their paths,
    so that each path has its share, and one below a line may be missing. In an order drawn from a fixed seed. And how
    many of these requests were left out, of how many: those for another server, or without a path.

    Raises LogError.
    """
    with database() as db:
        requests = requests_of(db, [log.resolve() for log in logs])
    counts, of = _of_the_server(requests), sum(n for _, n in requests)
    if not counts:
        raise LogError(
            f"{', '.join(map(str, logs))}: no GET request for a path in them was answered with 200; give a list of URLs"
        )
    left_out = of - sum(n for _, n in counts)
    ends, total = list(accumulate(count for _, count in counts)), sum(count for _, count in counts)
    most, paths, position = min(lines, total), [], 0
    for line in range(most):
        while ends[position] <= (line + 0.5) * total / most:
            position += 1
        paths.append(counts[position][0])
    random.Random(_SEED).shuffle(paths)
    return paths, left_out, of


def _of_the_server(requests: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The paths as they are asked for, with their numbers: the bare ones, and those of the commonest server if most
    requests name one. Others are probes for an open proxy, or no paths.
    """
    servers = Counter[str]()
    for path, n in requests:
        servers[match[1].lower() if (match := _ABSOLUTE.fullmatch(path)) else ""] += n
    server = servers.most_common(1)[0][0] if servers else ""
    counts = Counter[str]()
    for path, n in requests:
        match = _ABSOLUTE.fullmatch(path)
        rest = path if not match else (match[2] or "/") if match[1].lower() == server else ""
        rest = f"/{rest}" if rest.startswith("?") else rest
        if rest.startswith("/"):
            counts[_encoded(rest)] += n
    return sorted(counts.items())


def _encoded(path: str) -> str:
    """A path with % for what is not ASCII; it may be UTF-8 that was read as Latin-1, or have a log's escapes."""
    try:
        octets = path.encode("latin-1")
        octets.decode()
    except UnicodeError:
        octets = path.encode()
    octets = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()) if match[1] else match[2], octets)
    return quote(octets, safe=_ASCII.replace('"', "").replace("\\", ""))
