"""Read and write QEMU's command line, option by option, with values as `key=value` or JSON."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

# Options without a value; every other one takes the next word.
_FLAGS = frozenset({
    "S", "enable-kvm", "nodefaults", "no-user-config", "no-hpet", "no-acpi", "no-reboot", "no-shutdown", "daemonize",
    "no-fd-bootchk", "nographic", "snapshot", "usb", "mem-prealloc", "preconfig", "full-screen",
    "win2k-hack", "singlestep",
    "only-migratable", "no-quit", "alt-grab", "ctrl-grab", "old-param", "semihosting", "enable-fips",
})  # fmt: skip
# The key of a first part that has none.
_FIRST_KEYS = {
    "device": "driver", "netdev": "type", "net": "type", "nic": "type", "machine": "type", "smp": "cpus",
    "m": "size", "accel": "accel", "object": "qom-type", "name": "guest", "chardev": "backend", "mon": "chardev",
    "cpu": "model", "qmp": "chardev", "blockdev": "driver",
}  # fmt: skip
_DISKS = ("hda", "hdb", "hdc", "hdd", "sd", "mtdblock")
# Other names of an option.
_SAME = {"M": "machine"}


@dataclass(frozen=True)
class Option:
    """`-name text`. `values`: the text's values by key; keys of nested objects are joined by dots."""

    name: str
    text: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    is_json: bool = False

    def get(self, *keys: str, default: str = "") -> str:
        """The value of the first of these keys that the option has."""
        return next((self.values[key] for key in keys if key in self.values), default)

    def is_on(self, *keys: str) -> bool:
        """Return whether a switch is on."""
        return self.get(*keys) in ("on", "yes", "true")

    def is_off(self, *keys: str) -> bool:
        """Return whether a switch is off; an absent one is neither on nor off."""
        return self.get(*keys) in ("off", "no", "false")

    def with_values(self, changes: Mapping[str, str | None]) -> "Option":
        """The option with these values changed, in its form; None removes a value."""
        values = {key: value for key, value in {**self.values, **changes}.items() if value is not None}
        text = _as_json(self, values) if self.is_json else _as_pairs(self.name, values)
        return replace(self, text=text, values=values)

    @property
    def words(self) -> list[str]:
        """The option as words of a command line."""
        return [f"-{self.name}", *([self.text] if self.name not in _FLAGS else [])]


@dataclass(frozen=True)
class CommandLine:
    """A QEMU process's program and options."""

    program: str
    options: tuple[Option, ...]

    def all(self, *names: str) -> list[Option]:
        """All options of these names, in their order."""
        return [option for option in self.options if option.name in names]

    def has(self, *names: str) -> bool:
        """Return whether there is such an option."""
        return any(option.name in names for option in self.options)

    def merged(self, name: str) -> Option:
        """All options of a name merged into one, as QEMU does with -machine."""
        values = {key: value for option in self.all(name) for key, value in option.values.items()}
        return Option(name, values=values)

    def last(self, name: str) -> Option | None:
        """The last option of a name, which overrides the others."""
        return next(iter(reversed(self.all(name))), None)

    @property
    def qmp_sockets(self) -> list[str]:
        """Paths of the UNIX sockets on which it speaks QMP."""
        return list(_qmp_sockets(self))


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """Parse a QEMU process's command line from /proc/PID/cmdline."""
    program, *words = argv or [""]
    return CommandLine(program, tuple(_options(words)))


def _options(words: Sequence[str]) -> Iterator[Option]:
    left = iter(words)
    for word in left:
        name = re.sub(r"^--?", "", word)
        name = _SAME.get(name, name)
        if not word.startswith("-") or word == "-":
            yield parse_option("hda", word)
        elif name in _FLAGS:
            yield Option(name)
        else:
            yield parse_option(name, next(left, ""))


def parse_option(name: str, text: str) -> Option:
    """Parse an option's text."""
    if text.startswith("{"):
        try:
            return Option(name, text, dict(_flat(json.loads(text))), is_json=True)
        except ValueError:
            return Option(name, text)
    if name in _DISKS:
        return Option(name, text, {"file": text})
    return Option(name, text, dict(_pairs(name, text)))


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(split(text)):
        key, equals, value = part.partition("=")
        if equals:
            yield key, value
        elif number == 0 and name in _FIRST_KEYS:
            yield _FIRST_KEYS[name], part
        elif part.startswith("no") and name in ("chardev", "qmp"):
            yield part[2:], "off"
        elif part.startswith(("+", "-")):
            yield part[1:], "on" if part[0] == "+" else "off"
        elif part:
            yield part, "on"


def split(text: str) -> list[str]:
    """Split a text at its commas; a doubled comma is part of a value."""
    return [part.replace("\0", ",") for part in text.replace(",,", "\0").split(",")]


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{key}.")
        elif isinstance(item, bool):
            yield prefix + key, "on" if item else "off"
        else:
            yield prefix + key, item if isinstance(item, str) else json.dumps(item)


def _as_pairs(name: str, values: Mapping[str, str]) -> str:
    first = _FIRST_KEYS.get(name)
    doubled = {key: value.replace(",", ",,") for key, value in values.items()}
    parts = [doubled[first]] if first in doubled else []
    return ",".join([*parts, *(f"{key}={value}" for key, value in doubled.items() if key != first)])


def _as_json(before: Option, values: Mapping[str, str]) -> str:
    """The old object with the new values; new switches become booleans, new digits numbers."""
    tree: dict[str, Any] = {}
    old = dict(_typed(json.loads(before.text)))
    for key, value in values.items():
        *parents, last = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = old[key] if before.values.get(key) == value else _of_text(value)
    return json.dumps(tree, separators=(",", ":"))


def _typed(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _typed(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def _of_text(value: str) -> Any:
    return {"on": True, "off": False}.get(value, int(value) if value.isdigit() else value)


def _qmp_sockets(line: CommandLine) -> Iterator[str]:
    for qmp in line.all("qmp", "qmp-pretty"):
        if qmp.get("chardev").startswith("unix:"):
            yield qmp.get("chardev").removeprefix("unix:")
    chardevs = {chardev.get("id"): chardev for chardev in line.all("chardev")}
    for monitor in line.all("mon"):
        chardev = chardevs.get(monitor.get("chardev")) if monitor.get("mode") == "control" else None
        if chardev and chardev.get("path"):
            yield chardev.get("path")


def shell_text(options: Iterable[Option]) -> str:
    """The options quoted for a shell."""
    return shlex.join(word for option in options for word in option.words)
