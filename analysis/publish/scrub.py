"""Remove from texts whatever names a machine or a person: what looks like a name or an address, and known names.

Known are the inventory's names, the guests' domains and what the runner wrote to `private.json`: host names,
addresses, serials, users, key files. A machine's names become its role everywhere, so that texts and tables
still say which machine they mean.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Words of the project's own language, and accounts that many machines have: they give nobody away.
ORDINARY = frozenset({
    "client", "metal", "kvm", "guest", "host", "vm", "root", "user", "localhost", "sut", "none", "unknown", "address",
    "path", "id", "mac", "uuid", "key", "debian", "ubuntu", "admin", "ansible", "vagrant", "ec2-user",
})  # fmt: skip
# What stands under these keys are versions and digests, which may look like addresses: only names are taken out.
VERBATIM = frozenset({"packages", "version", "versions", "commit", "binary_sha256", "config_sha256", "content_digest"})

PART = 6  # letters from which on a name is looked for within words too

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_PATTERNS = [
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I), "[uuid]"),
    (re.compile(r"\b[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}\b", re.I), "[mac]"),
    (re.compile(r"\b(?:ssh|ecdsa)-[\w-]+ AAAA[\w+/=]+(?: \S+)?|\bSHA256:[\w+/]{20,}"), "[key]"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", re.I), "[id]"),
    (
        re.compile(
            r"[^\s\"'<>,;|]*/\.ssh\b[^\s\"'<>,;|]*|(?:/home|/Users|/root|/mnt|/media|/data|/export|~)/[^\s\"'<>,;|]*"
        ),
        "[path]",
    ),
    (re.compile(r"/dev/disk/by-[^\s\"'<>,;|]*"), "[path]"),
    (re.compile(r"[\w.+-]+@[\w.-]*\w"), "[user]@[host]"),
    (re.compile(rf"(?<![\d.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\.?\d)"), "[address]"),
]
_TOP = "com|net|org|edu|gov|cloud|local|lan|internal|intranet|corp|test|example|invalid|localdomain"
_SUFFIXES = "py|md|js|gz|xz|sh|so|rs|go|pl|cc"  # of files, not of hosts
_HOST = re.compile(rf"\b(?:[a-z0-9-]{{2,}}\.)+(?:{_TOP}|(?!(?:{_SUFFIXES})\b)[a-z]{{2}})\b", re.I)
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])", re.I)


@dataclass(frozen=True)
class Scrubber:
    """`known`: a name → what takes its place. `vocabulary`: words of the run that stay, whoever bears them too."""

    known: Mapping[str, str]
    vocabulary: frozenset[str] = field(default=frozenset())

    def text(self, value: str) -> str:
        """The text without names, addresses, hardware addresses, identifiers, keys and home folders."""
        if value in self.vocabulary:
            return value
        for pattern, word in _PATTERNS:
            value = pattern.sub(word, value)
        return _HOST.sub("[host]", self._named(_IPV6.sub(_address, value)))

    def tree(self, value: Any) -> Any:
        """A JSON value with every text in it scrubbed, keys too; versions and digests stay as they are."""
        if isinstance(value, dict):
            return {
                self.text(key): _each_text(item, self._named) if key in VERBATIM else self.tree(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _named(self, value: str) -> str:
        return self._names.sub(lambda match: self._places[match[0].lower()], value) if self._places else value

    @cached_property
    def _places(self) -> dict[str, str]:
        stay = ORDINARY | {word.lower() for word in self.vocabulary}
        return {name.lower(): place for name, place in self.known.items() if len(name) > 1 and name.lower() not in stay}

    @cached_property
    def _names(self) -> re.Pattern[str]:
        """Longest first. A short name counts where it stands alone, a long one also as a part of another word."""
        longest_first = sorted(self._places, key=len, reverse=True)
        words = [re.escape(name) for name in longest_first]
        alone = [word if len(word) >= PART else rf"(?<![a-z0-9]){word}(?![a-z0-9])" for word in words]
        return re.compile("|".join(alone), re.I)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _each_text(item, change) for key, item in value.items()}
    return change(value) if isinstance(value, str) else value


def _address(match: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return "[address]"
