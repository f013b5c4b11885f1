"""Bytes of one file: the kind's magic bytes, an exact size, the same for the same random source."""

import random
from collections.abc import Callable

from workloads.sites.model import Kind

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
    """Six to sixteen words and a full stop."""
    words = rng.choices(_WORDS, k=rng.randint(6, 16))
    return " ".join(words).capitalize() + "."


def _paragraphs(rng: random.Random, size: int) -> bytes:
    """Whole paragraphs of exactly `size` bytes; the last one's text is cut to fit."""
    parts: list[str] = []
    left = size
    while left >= 8:
        text = " ".join(sentence(rng) for _ in range(5))[: left - 8]
        parts.append(f"<p>{text}</p>\n")
        left -= len(text) + 8
    return "".join(parts).encode("ascii") + b" " * left


def html(rng: random.Random, size: int) -> bytes:
    """A readable page; below the size of a skeleton, plain text."""
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
        left = room - 3
        while left:
            block = min(255, left - 1) if left != 257 else 254
            out += bytes([block]) + rng.randbytes(block)
            left -= block + 1
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


MAKERS: dict[Kind, Callable[[random.Random, int], bytes]] = {
    "html": html,
    "gif": gif,
    "jpeg": jpeg,
    "pdf": pdf,
    "doc": doc,
}

# Below this size a file of the kind could not carry its signature and frame.
SMALLEST: dict[Kind, int] = {"html": 0, "gif": 35, "jpeg": 22, "pdf": 400, "doc": 512}
