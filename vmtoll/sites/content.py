"""Make the bytes of a file: its kind's magic bytes, an exact size, the same for the same random source."""

import random
import zlib
from collections.abc import Callable

from vmtoll.model.site import Kind

# fmt: off
_WORDS = (
    "report", "meeting", "agenda", "office", "printer", "invoice", "travel", "budget", "project",
    "schedule", "notice", "staff", "canteen", "holiday", "network", "server", "backup", "deadline",
    "customer", "order", "delivery", "contract", "signature", "archive", "minutes", "room", "floor",
    "paper", "folder", "desk", "telephone", "summer", "winter", "monday", "friday", "morning",
    "please", "return", "before", "after", "with", "from", "the", "and", "for", "our", "new",
    "last", "next", "every",
)
# fmt: on


def sentence(rng: random.Random) -> str:
    """Six to sixteen words and a period."""
    words = rng.choices(_WORDS, k=rng.randint(6, 16))
    return " ".join(words).capitalize() + "."


def _paragraphs(rng: random.Random, size: int) -> bytes:
    """Whole paragraphs of exactly `size` bytes; the last one's text is cut to fit."""
    parts: list[str] = []
    remaining = size
    while remaining >= 8:
        text = " ".join(sentence(rng) for _ in range(5))[: remaining - 8]
        parts.append(f"<p>{text}</p>\n")
        remaining -= len(text) + 8
    return "".join(parts).encode("ascii") + b" " * remaining


def html(rng: random.Random, size: int) -> bytes:
    """A readable page; plain text if `size` is too small for one."""
    title = sentence(rng).rstrip(".")
    head = f'<!DOCTYPE html>\n<html lang="en"><head><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n'
    frame = head.encode("ascii")
    foot = b"</body></html>\n"
    room = size - len(frame) - len(foot)
    if room < 0:
        return ("ok " + sentence(rng) * (size // 8 + 1)).encode("ascii")[:size]
    return frame + _paragraphs(rng, room) + foot


def _fit(start: bytes, end: bytes, size: int, fill: Callable[[int], bytes]) -> bytes:
    room = size - len(start) - len(end)
    return start + fill(room) + end if room >= 0 else (start + end)[:size]


def gif(rng: random.Random, size: int) -> bytes:
    """GIF89a of one pixel, padded with comment blocks."""
    start = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff"
    end = b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"

    def comments(room: int) -> bytes:
        if room < 4:
            return b""
        out = bytearray(b"!\xfe")
        remaining = room - 3
        while remaining:
            block = min(255, remaining - 1) if remaining != 257 else 254
            out += bytes([block]) + rng.randbytes(block)
            remaining -= block + 1
        return bytes(out) + b"\x00"

    return _fit(start, end, size, comments).ljust(size, b"\x00")


def jpeg(rng: random.Random, size: int) -> bytes:
    """JFIF header, comment segments, end of image."""
    start = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"

    def comments(room: int) -> bytes:
        out = bytearray()
        while room >= 4:
            block = min(room, 60000)
            if 0 < room - block < 4:
                block -= 4
            out += b"\xff\xfe" + (block - 2).to_bytes(2, "big") + rng.randbytes(block - 4)
            room -= block
        return bytes(out) + b"\xff" * room

    return _fit(start, b"\xff\xd9", size, comments)


def pdf(rng: random.Random, size: int) -> bytes:
    """One page whose content stream fills the file."""
    start = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R>>endobj\n4 0 obj<<>>stream\n"
    )
    return _fit(start, b"\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n", size, rng.randbytes)


def doc(rng: random.Random, size: int) -> bytes:
    """The OLE2 signature and noise."""
    start = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + b"\x3e\x00\x03\x00\xfe\xff\x09\x00"
    return _fit(start, b"", size, rng.randbytes)


def css(rng: random.Random, size: int) -> bytes:
    """Rules, the last one cut to fit."""
    return _repeated(size, lambda: f".{rng.choice(_WORDS)}-{rng.choice(_WORDS)}{{{_declarations(rng)}}}\n")


def _declarations(rng: random.Random) -> str:
    names = rng.sample(("margin", "padding", "width", "height", "top", "left"), k=3)
    return "".join(f"{name}:{rng.randrange(96)}px;" for name in names) + f"color:#{rng.randrange(1 << 24):06x}"


def js(rng: random.Random, size: int) -> bytes:
    """Functions as a minifier writes them, the last one cut to fit."""
    return _repeated(
        size,
        lambda: (
            f"function {rng.choice(_WORDS)}{rng.randrange(999)}(e,t){{return e.{rng.choice(_WORDS)}"
            f"?t.{rng.choice(_WORDS)}({rng.randrange(9999)}):null}}\n"
        ),
    )


def svg(rng: random.Random, size: int) -> bytes:
    """Paths in a frame."""
    start, end = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 960">', b"</svg>\n"

    def paths(room: int) -> bytes:
        return _repeated(room, lambda: f'<path d="M{rng.randrange(960)} {rng.randrange(960)}h{rng.randrange(99)}"/>\n')

    return _fit(start, end, size, paths)


def _repeated(size: int, piece: Callable[[], str]) -> bytes:
    parts: list[bytes] = []
    remaining = size
    while remaining > 0:
        parts.append(piece().encode("ascii"))
        remaining -= len(parts[-1])
    return b"".join(parts)[:size]


def webp(rng: random.Random, size: int) -> bytes:
    """The RIFF header with its length, one VP8 chunk, noise."""
    start = b"RIFF" + max(size - 8, 0).to_bytes(4, "little") + b"WEBPVP8 " + max(size - 20, 0).to_bytes(4, "little")
    return _fit(start, b"", size, rng.randbytes)


def woff2(rng: random.Random, size: int) -> bytes:
    """The signature, TrueType's flavor, the length, noise."""
    return _fit(b"wOF2\x00\x01\x00\x00" + size.to_bytes(4, "big"), b"", size, rng.randbytes)


def compressible(maker: Callable[[random.Random, int], bytes], seed: str, size: int) -> tuple[bytes, bytes]:
    """A text, and its gzip variant of exactly `size` bytes: as much text as fits, padded by a comment in the header.

    The size is the same everywhere; the bytes depend on this machine's zlib.
    """
    length, best = size, 1
    for _ in range(8):
        packed = len(_gzip(maker(random.Random(seed), length), 0))
        if packed <= size:
            best = max(best, length)
            if packed >= 0.97 * size:
                break
        length = max(1, min(int(length * 0.985 * size / packed), length * 4))
    text = maker(random.Random(seed), best)
    return text, _gzip(text, size - len(_gzip(text, 0)))


def _gzip(text: bytes, comment: int) -> bytes:
    """A gzip file (RFC 1952) with no time, and a comment of this size, including its final zero."""
    packer = zlib.compressobj(level=6, wbits=-zlib.MAX_WBITS)
    body = packer.compress(text) + packer.flush()
    note = b" " * (comment - 1) + b"\x00" if comment else b""
    head = b"\x1f\x8b\x08" + (b"\x10" if comment else b"\x00") + bytes(4) + b"\x00\x03"
    return head + note + body + zlib.crc32(text).to_bytes(4, "little") + (len(text) % 2**32).to_bytes(4, "little")


MAKERS: dict[Kind, Callable[[random.Random, int], bytes]] = {
    "html": html,
    "gif": gif,
    "jpeg": jpeg,
    "pdf": pdf,
    "doc": doc,
    "css": css,
    "js": js,
    "svg": svg,
    "webp": webp,
    "woff2": woff2,
}

# Below this size a file of the kind could not carry its signature and frame.
# fmt: off
SMALLEST: dict[Kind, int] = {
    "html": 0, "gif": 35, "jpeg": 22, "pdf": 400, "doc": 512, "css": 0, "js": 0, "svg": 70, "webp": 20, "woff2": 12,
}
# fmt: on
