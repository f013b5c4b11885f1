"""The manifest of a site and the URL lists drawn from it."""

import hashlib
import random
from collections.abc import Sequence
from typing import TypedDict


class SiteFile(TypedDict):
    path: str
    size_bytes: int
    sha256: str
    weight: int


class SiteFiles(TypedDict):
    site: str
    digest: str
    files: list[SiteFile]


# Of an experiment whose service has no site.
NO_FILES: SiteFiles = {"site": "", "digest": "", "files": []}


def digest(files: Sequence[SiteFile]) -> str:
    """SHA-256 of the lines `sha256  path\\n`, sorted by path."""
    total = hashlib.sha256()
    for entry in sorted(files, key=lambda f: f["path"]):
        total.update(f"{entry['sha256']}  {entry['path']}\n".encode())
    return total.hexdigest()


def url_list(site_files: SiteFiles, base_url: str, seed: int) -> list[str]:
    """Every file's URL, repeated by its weight and shuffled by `seed`; the same seed gives the same list."""
    lines = [f["path"] for f in site_files["files"] for _ in range(f["weight"])]
    random.Random(seed).shuffle(lines)
    return [f"{base_url.rstrip('/')}/{path}" for path in lines]


def lockstep_list(site_files: SiteFiles, base_url: str, seed: int, users: int) -> list[str]:
    """A list for tools whose users all start at the first line: one user's fair share of `url_list`.

    Sorts the lines by file size, takes the middle one of every `users` lines, and shuffles them. `users` users that
    each walk the list once send nearly the bytes of one whole `url_list`, even if each makes few requests.
    """
    by_size = sorted(site_files["files"], key=lambda f: (f["size_bytes"], f["path"]))
    lines = [f["path"] for f in by_size for _ in range(f["weight"])]
    share = lines[users // 2 :: users] or lines
    random.Random(seed).shuffle(share)
    return [f"{base_url.rstrip('/')}/{path}" for path in share]
