"""Read and write QEMU's command line, option by option, with values as `key=value` or JSON."""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

# Options without a value where no QEMU is there to list its own (see `valueless`): those of all releases to 10.
FLAGS = frozenset({
    "h", "help", "version", "S", "s", "enable-kvm", "no-kvm", "nodefaults", "no-user-config", "nodefconfig", "no-hpet",
    "no-acpi", "no-reboot", "no-shutdown", "daemonize", "no-fd-bootchk", "nographic", "snapshot", "usb", "mem-prealloc",
    "preconfig", "full-screen", "win2k-hack", "singlestep", "one-insn-per-tb", "only-migratable", "no-quit", "no-frame",
    "alt-grab", "ctrl-grab", "old-param", "semihosting", "enable-fips", "enable-sync-profile", "sdl", "curses",
    "portrait", "tdf", "rtc-td-hack", "localtime", "audio-help", "no-kvm-irqchip", "no-kvm-pit",
    "no-kvm-pit-reinjection", "xen-attach", "xen-create", "xen-domid-restrict", "xen-force-privileged",
})  # fmt: skip
# The key of a first part that has none.
_FIRST_KEYS = {
    "device": "driver", "netdev": "type", "net": "type", "nic": "type", "machine": "type", "smp": "cpus",
    "m": "size", "accel": "accel", "object": "qom-type", "name": "guest", "chardev": "backend", "mon": "chardev",
    "cpu": "model", "qmp": "chardev", "blockdev": "driver",
}  # fmt: skip
_DISKS = ("hda", "hdb", "hdc", "hdd", "sd", "mtdblock")
# Other names of an option, and the groups of a file that -readconfig names.
_SAME = {"M": "machine", "smp-opts": "smp", "memory": "m"}
# A line of QEMU's help: options, and what they take; column 16 begins the explanation.
_HELP = re.compile(r"(-[\w-]+(?:(?: or |/)-[\w-]+)*)(.*)")
_SECTION = re.compile(r'\[\s*([\w-]+)(?:\s+"(.*)")?\s*\]')
_SETTING = re.compile(r'([\w.-]+)\s*=\s*"(.*)"')


@dataclass(frozen=True)
class Option:
    """`-name text`. `values`: the text's values by key; keys of nested objects are joined by dots. `section`: where a
    file that the command line names has it.
    """

    name: str
    text: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    is_json: bool = False
    section: str = ""

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
        return replace(self, text=text, values=values, section="")

    @property
    def words(self) -> list[str]:
        """The option as words of a command line."""
        return [f"-{self.name}", *([self.text] if self.text or self.name not in FLAGS else [])]


@dataclass(frozen=True)
class CommandLine:
    """A QEMU process's program and options. `unread`: what it names or has that vmtoll could not read."""

    program: str
    options: tuple[Option, ...]
    unread: tuple[str, ...] = ()

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

    def globals_of(self, driver: str) -> list[str]:
        """The words that set a property of each device of a driver."""
        return [word for option in self.all("global") if driver in option.text for word in option.words]

    @property
    def qmp_sockets(self) -> list[str]:
        """Paths of the UNIX sockets on which it speaks QMP."""
        return list(_qmp_sockets(self))


def parse_command_line(
    argv: Sequence[str], flags: Collection[str] = FLAGS, files: Mapping[str, str] | None = None
) -> CommandLine:
    """Parse a QEMU process's command line from /proc/PID/cmdline.

    `flags`: the options without a value; `files`: the texts of files that -readconfig names.
    """
    program, *words = argv or [""]
    options, unread = list[Option](), list[str]()
    for option in _options(words, flags):
        if option.name == "readconfig":
            text = (files or {}).get(option.text)
            options += [] if text is None else _of_config(option.text, text)
            unread += [f"the file {option.text}"] if text is None else []
            continue
        if option.text.startswith("{") and not option.is_json:
            unread.append(f"-{option.name} {option.text[:40]}")
        options.append(option)
    return CommandLine(program, tuple(_with_defaults(options)), tuple(unread))


def config_files(argv: Sequence[str]) -> list[str]:
    """The files that -readconfig names."""
    return [path for word, path in pairwise(argv) if re.fullmatch("--?readconfig", word)]


def valueless(help_text: str) -> frozenset[str]:
    """The options without a value, by QEMU's own help; FLAGS if it is not QEMU's."""
    listed: dict[bool, set[str]] = {True: set(), False: set()}
    for line in help_text.splitlines():
        if match := _HELP.match(line):
            takes = match[2] if len(match[1]) > 15 else line[len(match[1]) : 16]
            names = {name.lstrip("-") for name in re.split(" or |/", match[1])}
            listed[not takes.strip() or (takes.startswith("  ") and len(match[1]) > 15)] |= names
    return (FLAGS - listed[False]) | listed[True] if "enable-kvm" in listed[True] else FLAGS


def _options(words: Sequence[str], flags: Collection[str]) -> Iterator[Option]:
    left = iter(words)
    for word in left:
        name = re.sub(r"^--?", "", word)
        name = _SAME.get(name, name)
        if not word.startswith("-") or word == "-":
            yield parse_option("hda", word)
        elif name in flags:
            yield Option(name)
        else:
            yield parse_option(name, next(left, ""))


def _of_config(path: str, text: str) -> Iterator[Option]:
    """The options of a file in QEMU's notation for -readconfig: `[group "id"]`, then `key = "value"`."""
    name, section, values = "", "", dict[str, str]()
    for line in [*text.splitlines(), "[]"]:
        header, setting = _SECTION.fullmatch(line.strip()), _SETTING.fullmatch(line.strip())
        if setting:
            values[setting[1]] = setting[2]
        elif header or line == "[]":
            if name:
                yield Option(name, _as_pairs(name, values), values, section=section)
            name = _SAME.get(header[1], header[1]) if header else ""
            section = f"{line.strip()} of {path}"
            values = {"id": header[2]} if header and header[2] else {}


def _with_defaults(options: Sequence[Option]) -> Iterator[Option]:
    """The options with what -set and -global change in them; their texts stay."""
    set_values, default_values = dict[tuple[str, str], dict[str, str]](), dict[str, dict[str, str]]()
    for option in options:
        target, equals, value = option.text.partition("=")
        if option.name == "set" and target.count(".") >= 2 and equals:
            group, name, key = target.split(".", 2)
            set_values.setdefault((group, name), {})[key] = value
        elif option.name == "global" and "driver" in option.values:
            driver, key, value = (option.get(name) for name in ("driver", "property", "value"))
            default_values.setdefault(driver, {})[key] = value
        elif option.name == "global" and "." in target:
            driver, _, key = target.partition(".")
            default_values.setdefault(driver, {})[key] = value
    for option in options:
        of_driver = default_values.get(option.get("driver"), {}) if option.name == "device" else {}
        of_id = set_values.get((option.name, option.get("id", "node-name")), {})
        yield replace(option, values={**of_driver, **option.values, **of_id}) if of_driver or of_id else option


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
    """The options quoted for a shell; those of a file by their section."""
    options = list(options)
    words = shlex.join(word for option in options if not option.section for word in option.words)
    return "; ".join(filter(None, [words, *(option.section for option in options if option.section)]))
