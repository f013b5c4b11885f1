"""Draw a site's files from its seed and write them."""

import hashlib
import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

from vmtoll.model.site import KINDS, DrawnSite, Kind, ListedSite, Page, Site, kind_of
from vmtoll.sites.content import MAKERS, SMALLEST, compressible
from vmtoll.sites.load import load_site
from vmtoll.sites.manifest import SiteFile, SiteFiles, digest

# Every file carries this time, so that Last-Modified and ETag are alike on every host.
MTIME_S = 1_234_567_890
_FOLDERS = ("", "news", "staff", "forms", "products/manuals")


def sizes(site: DrawnSite, rng: random.Random) -> list[int]:
    """Sizes in bytes, largest first: quantiles of the distribution with a little jitter, and both extremes."""
    in_tail = round(site.files * site.tail.share)
    in_body = site.files - in_tail
    normal = NormalDist(math.log(site.body.median_bytes), site.body.sigma)
    drawn = [math.exp(normal.inv_cdf((i + rng.uniform(0.1, 0.9)) / in_body)) for i in range(in_body)]
    low, high, alpha = site.tail.from_bytes, site.largest_bytes, site.tail.alpha
    cut = 1 - (low / high) ** alpha
    for i in range(in_tail):
        share = (i + rng.uniform(0.1, 0.9)) / in_tail
        drawn.append(low / (1 - share * cut) ** (1 / alpha))
    result = sorted((min(high, max(site.smallest_bytes, round(s))) for s in drawn), reverse=True)
    result[0], result[-1] = site.largest_bytes, site.smallest_bytes
    return result


def weights(site: DrawnSite, rng: random.Random) -> list[int]:
    """One weight per file, at least 1, adding up to `popularity.lines`: Zipf shares, rounded by largest remainder."""
    spare = site.popularity.lines - site.files
    shares = [1 / rank**site.popularity.zipf_exponent for rank in range(1, site.files + 1)]
    exact = [spare * share / sum(shares) for share in shares]
    result = [1 + int(e) for e in exact]
    rest = site.popularity.lines - sum(result)
    for i in sorted(range(site.files), key=lambda i: (int(exact[i]) - exact[i], i))[:rest]:
        result[i] += 1
    rng.shuffle(result)
    return result


def _kind(site: DrawnSite, rng: random.Random, size: int) -> Kind:
    kinds = [k for k in KINDS if k in site.kinds and size >= SMALLEST[k]]
    return rng.choices(kinds, weights=[site.kinds[k] for k in kinds])[0]


def files(site: Site) -> Iterator[tuple[str, int, bytes]]:
    """Yield (path, weight, body) of every file; the weight is its lines in the URL list."""
    if isinstance(site, ListedSite):
        yield from _listed_files(site, weight=1)
    else:
        yield from _drawn_files(site)
        yield from _listed_files(site, weight=0)


def _listed_files(site: Site, weight: int) -> Iterator[tuple[str, int, bytes]]:
    for path, content in site.pages.items():
        if isinstance(content, Page) and content.gzip:
            text, packed = _compressible(site, path, content.size_bytes)
            yield path, 0, text
            yield f"{path}.gz", content.weight, packed
        elif isinstance(content, Page):
            yield path, content.weight, _body(site, path, content.size_bytes)
        else:
            yield path, weight, content.encode() if isinstance(content, str) else _body(site, path, content)


def _body(site: Site, path: str, size: int) -> bytes:
    kind = kind_of(path)
    body = MAKERS[kind](random.Random(f"{site.seed}:{path}"), size) if kind else b""
    if len(body) != size:
        raise AssertionError(f"{path}: drew {len(body)} bytes instead of {size}")
    return body


def _compressible(site: Site, path: str, size: int) -> tuple[bytes, bytes]:
    kind = kind_of(path)
    text, packed = compressible(MAKERS[kind], f"{site.seed}:{path}", size) if kind else (b"", b"")
    if len(packed) != size:
        raise AssertionError(f"{path}.gz: made {len(packed)} bytes instead of {size}")
    return text, packed


def _drawn_files(site: DrawnSite) -> Iterator[tuple[str, int, bytes]]:
    for path, weight, size in _drawn(site):
        yield path, weight, _body(site, path, size)


def _drawn(site: DrawnSite) -> Iterator[tuple[str, int, int]]:
    """Yield (path, weight, size) of the drawn files, index.html first."""
    rng = random.Random(f"{site.name}:{site.seed}")
    drawn = sizes(site, rng)
    drawn.insert(0, drawn.pop(len(drawn) // 2))  # the index page has the median size
    for number, (size, weight) in enumerate(zip(drawn, weights(site, rng), strict=True)):
        kind = "html" if number == 0 else _kind(site, rng, size)
        suffix = "jpg" if kind == "jpeg" else kind
        folder = rng.choice(_FOLDERS)
        path = "index.html" if number == 0 else f"{folder}/file{number:03d}.{suffix}".lstrip("/")
        yield path, weight, size


def paths(site: Site) -> list[str]:
    """The paths of all files, sorted. It makes none of them, which takes up to a second."""
    names = [path for path, _, _ in _drawn(site)] if isinstance(site, DrawnSite) else []
    for path, content in site.pages.items():
        is_packed = isinstance(content, Page) and content.gzip
        names += [path, f"{path}.gz"] if is_packed else [path]
    return sorted(names)


def _entry(path: str, weight: int, body: bytes) -> SiteFile:
    return {"path": path, "size_bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(), "weight": weight}


def site_files(site: Site) -> SiteFiles:
    """The manifest of what every SUT must serve; writes nothing."""
    return _site_files_of(site, [_entry(*file) for file in files(site)])


def _site_files_of(site: Site, entries: list[SiteFile]) -> SiteFiles:
    return {"site": site.name, "digest": digest(entries), "files": sorted(entries, key=lambda f: f["path"])}


def build(site_yml: Path, out_dir: Path) -> SiteFiles:
    """Write OUT/<site>/… and OUT/<site>.manifest.json with fixed times; return the manifest.

    Removes files from OUT/<site> that the site does not have. Raises SiteError, OSError.
    """
    site = load_site(site_yml)
    root = out_dir / site.name
    entries = []
    for path, weight, body in files(site):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)
        entries.append(_entry(path, weight, body))
    written_files = {root / e["path"] for e in entries}
    for existing in sorted(root.rglob("*"), reverse=True):
        if existing.is_dir():
            if not any(existing.iterdir()):
                existing.rmdir()
        elif existing not in written_files:
            existing.unlink()
    result = _site_files_of(site, entries)
    manifest_file = out_dir / f"{site.name}.manifest.json"
    manifest_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for output_path in [*sorted(root.rglob("*"), reverse=True), root, manifest_file]:
        output_path.chmod(0o755 if output_path.is_dir() else 0o644)
        os.utime(output_path, (MTIME_S, MTIME_S))
    return result
