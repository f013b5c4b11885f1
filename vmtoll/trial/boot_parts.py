"""The parts of a boot up to a server's first answer, and what the server waited for, as the guest's systemd says."""

from collections.abc import Iterator, Mapping

from vmtoll.model.first_answer import UnitWait

MANAGER = (
    "FirmwareTimestampMonotonic", "LoaderTimestampMonotonic", "InitRDTimestampMonotonic", "UserspaceTimestampMonotonic",
)  # fmt: skip
UNIT = (
    "Id", "After", "InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic", "InactiveEnterTimestampMonotonic",
    "ExecMainStartTimestampMonotonic",
)  # fmt: skip
# The shortest wait for a unit that is named, and the most that are.
_SHORTEST_S, _MOST_WAITS = 0.01, 8

Unit = Mapping[str, str]


def show_command(*patterns: str) -> list[str]:
    """The command whose output the functions below read: of the manager, or of the units of these patterns."""
    names = UNIT if patterns else MANAGER
    return ["systemctl", "show", "--no-pager", *(word for name in names for word in ("-p", name)), *patterns]


def parts_of(
    manager: str, units: str, server: str, kernel_at_s: float, network_s: float, answer_s: float
) -> dict[str, float]:
    """Part → seconds, from the start up to the answer; together `answer_s`.

    `manager`, `units`: output of systemctl; `server`: the server's unit; `kernel_at_s`: when the guest's kernel began,
    `network_s`: when its network first answered, `answer_s`: when the client had the answer, all from the start.
    `host`: what comes before the kernel and that the guest cannot see: the process that runs it, and firmware and boot
    loader, unless an EFI tells their times. `kernel`: with an initial RAM disk that systemd does not run. `network`: in
    which the server's process runs, and the guest cannot be reached yet. Raises ValueError if systemd has not started
    the server.
    """
    at = _properties(manager)
    of_server = units_of(units).get(server, {})
    exec_s = _seconds(of_server, "ExecMainStartTimestampMonotonic")
    userspace_s = _seconds(at, "UserspaceTimestampMonotonic")
    if not exec_s or not userspace_s:
        raise ValueError(f"systemd did not start {server} in this boot")
    # Of an EFI: how long before the kernel each of them began.
    firmware_s, loader_s = _seconds(at, "FirmwareTimestampMonotonic"), _seconds(at, "LoaderTimestampMonotonic")
    initrd_s = _seconds(at, "InitRDTimestampMonotonic")
    before_s = max(firmware_s, loader_s)
    parts = {"host": kernel_at_s - before_s}
    if before_s:
        parts |= {"firmware": before_s - loader_s, "loader": loader_s}
    parts["kernel"] = initrd_s or userspace_s
    if initrd_s:
        parts["initrd"] = userspace_s - initrd_s
    server_at_s = kernel_at_s + exec_s
    unreached_s = max(0.0, network_s - server_at_s)
    parts |= {"systemd": exec_s - userspace_s} | ({"network": unreached_s} if unreached_s else {})
    return {**parts, "server": answer_s - server_at_s - unreached_s}


def waits_of(units: str, server: str) -> tuple[UnitWait, ...]:
    """The chain of units that the server waited for, from the last one back: of those that a unit is ordered after, the
    one that was up last. Short ones are left out.
    """
    by_name = units_of(units)
    return tuple(wait for wait in _chain(by_name, server) if wait.length_s >= _SHORTEST_S)[:_MOST_WAITS]


def _chain(by_name: Mapping[str, Unit], name: str) -> Iterator[UnitWait]:
    seen, begin_s = {name}, _seconds(by_name.get(name, {}), "InactiveExitTimestampMonotonic")
    while begin_s:
        before = {
            other: _up_s(by_name[other]) for other in by_name[name].get("After", "").split() if other in by_name
        }  # fmt: skip
        earlier = {other: up_s for other, up_s in before.items() if other not in seen and 0 < up_s <= begin_s}
        if not earlier:
            return
        name = max(earlier, key=lambda other: earlier[other])
        seen.add(name)
        begin_s = _seconds(by_name[name], "InactiveExitTimestampMonotonic") or earlier[name]
        yield UnitWait(unit=name, begin_s=begin_s, length_s=max(0.0, earlier[name] - begin_s))


def _up_s(unit: Unit) -> float:
    """When a unit was up; of one that has ended by then, when it ended; 0 if it was neither."""
    return _seconds(unit, "ActiveEnterTimestampMonotonic") or _seconds(unit, "InactiveEnterTimestampMonotonic")


def units_of(text: str) -> dict[str, Unit]:
    """Unit → its properties, of `systemctl show` of several units."""
    blocks = [_properties(block) for block in text.split("\n\n")]
    return {block["Id"]: block for block in blocks if "Id" in block}


def _properties(text: str) -> Unit:
    return {name: value for name, _, value in (line.partition("=") for line in text.splitlines())}


def _seconds(properties: Unit, name: str) -> float:
    value = properties.get(name, "")
    return int(value) / 1e6 if value.isdigit() else 0.0
