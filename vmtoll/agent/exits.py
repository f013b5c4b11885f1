"""Count and time the exits of a guest's virtual CPUs by the kernel's own event histograms (tracefs).

A private instance pairs each kvm:kvm_exit of a thread with its next kvm:kvm_entry, and adds up counts and times by
reason in the kernel (Linux, Documentation/trace/histogram.rst); and, by sched:sched_switch, the times in between
in which the thread was on no CPU: it slept, or waited for one. Nothing is recorded for each exit.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vmtoll.agent.machine import read, stat_fields
from vmtoll.agent.protocol import ExitCount, GuestAddress
from vmtoll.agent.waits import kind_of

TRACEFS = ("sys/kernel/tracing", "sys/kernel/debug/tracing")
# An instance and its synthetic event are named after the agent: its PID and when it started, so that the next one
# recognizes what a killed agent left.
_INSTANCE = "vmtoll-{pid}-{start}"
_ENDED, _AWAY = "vmtoll_exit", "vmtoll_away"
_LEFT = re.compile(r"vmtoll-(\d+)-(\d+)")
# Numbers of kvm_exit's field `isa`.
_VMX, _SVM = 1, 2
_ROW = re.compile(r"\{ isa:\s*(\d+), reason:\s*(\d+) \} hitcount:\s*(\d+)\s+ns:\s*(\d+)")
_SYMBOLS = re.compile(r"__print_symbolic\(REC->exit_reason[^,]*,((?:\s*\{[^}]*\},?)+)")
_SYMBOL = re.compile(r'\{\s*(0x[0-9a-fA-F]+|-?\d+),\s*"([^"]+)"\s*\}')
# A trigger is one line of at most a page.
_LONGEST = 4000


def tracefs(root: Path = Path("/")) -> Path | None:
    """The folder of the kernel's tracing; None where none is mounted, or this user may not read it."""
    return next((root / name for name in TRACEFS if os.access(root / name / "instances", os.W_OK)), None)


def obstacle(root: Path = Path("/")) -> tuple[str, str]:
    """(why exits cannot be traced on this machine, what to do about it); both empty where they can."""
    if os.uname().machine != "x86_64":
        return f"its CPU is {os.uname().machine}, and vmtoll knows the exits of x86-64 alone", "measure on such a host"
    if os.geteuid() != 0:
        return "only root may trace its kernel", "connect to it as root"
    folder = tracefs(root)
    if folder is None:
        return "no tracefs is mounted there", "run `mount -t tracefs tracefs /sys/kernel/tracing` on it"
    if not (folder / "events/kvm/kvm_exit").is_dir():
        return "its kernel has no events of KVM", "load kvm_intel or kvm_amd"
    if not ((folder / "synthetic_events").exists() and (folder / "events/kvm/kvm_exit/hist").exists()):
        return (
            "its kernel has no histograms of events (CONFIG_HIST_TRIGGERS, CONFIG_SYNTH_EVENTS)",
            "boot a kernel that has them, as Debian's",
        )
    return "", ""


def reasons(event_format: str) -> dict[tuple[int, int], str]:
    """(isa, number) → the kernel's name of an exit reason, from the text of events/kvm/kvm_exit/format."""
    lists = _SYMBOLS.findall(event_format)
    return {
        (isa, int(number, 0) & 0xFFFFFFFF): name
        for isa, text in zip((_VMX, _SVM), lists)
        for number, name in _SYMBOL.findall(text)
    }


def counts(ended: str, away: str, names: dict[tuple[int, int], str]) -> list[ExitCount]:
    """The rows of the two histograms: of exits that have ended, and of the times on no CPU. Raises RuntimeError when
    the kernel has left some out.
    """
    totals: dict[str, ExitCount] = {}
    for name, count, ns in _rows(ended, names):
        row = totals.setdefault(name, {"reason": name, "count": 0, "ns": 0, "away_ns": 0})
        row["count"], row["ns"] = row["count"] + count, row["ns"] + ns
    for name, _, ns in _rows(away, names):
        if name in totals:  # the first exit for a reason may not have ended
            totals[name]["away_ns"] += ns
    return list(totals.values())


def _rows(histogram: str, names: dict[tuple[int, int], str]) -> Iterator[tuple[str, int, int]]:
    """Name of a reason, number of events, sum of their times."""
    if (dropped := re.search(r"Dropped:\s*(\d+)", histogram)) and int(dropped[1]):
        raise RuntimeError(f"the kernel left {dropped[1]} exits out of its histogram")
    for fields in _ROW.findall(histogram):
        isa, number, count, ns = map(int, fields)
        if isa == _VMX:
            number &= 0xFFFF  # the bits above are flags, as of a failed entry
        yield names.get((isa, number), f"reason {number:#x}"), count, ns


def vcpu_threads(pid: str, known: Iterable[int] = ()) -> list[int]:
    """Thread IDs of a guest's virtual CPUs. `known`: those that its monitor has named."""
    tasks = [task for task in Path(f"/proc/{pid}/task").glob("*") if kind_of(read(f"{task}/comm")) == "vcpu"]
    return sorted(set(known) or {int(task.name) for task in tasks})


class ExitTrace:
    """Traces the exits of some threads until `close`. Raises RuntimeError where the kernel refuses."""

    def __init__(self, threads: Iterable[int], root: Path = Path("/")) -> None:
        folder = tracefs(root)
        if folder is None:
            raise RuntimeError("no tracefs is mounted")
        pid = str(os.getpid())
        words = {"pid": pid, "start": stat_fields(pid)[19]}
        self._root, self._mark = folder, f"{pid}_{words['start']}"
        self._instance = folder / "instances" / _INSTANCE.format(**words)
        ours = list(threads)
        if not ours or len(_one_of("common_pid", ours)) > _LONGEST:
            raise RuntimeError("no thread of a virtual CPU was found" if not ours else "the guest has too many CPUs")
        self._names = reasons(read(str(folder / "events/kvm/kvm_exit/format")))
        try:
            self._begin(ours)
        except OSError as error:
            self.close()
            errors = [line for line in read(str(folder / "error_log")).splitlines() if "error" in line]
            raise RuntimeError(f"tracefs: {error.strerror}; {errors[-1] if errors else 'no reason given'}") from error

    def _begin(self, threads: list[int]) -> None:
        self._instance.mkdir()
        _write(self._instance / "trace_clock", "mono")
        for name in (_ENDED, _AWAY):
            _write(self._root / "synthetic_events", f"{name}_{self._mark} u32 isa; u32 reason; u64 ns")
            _write(self._file(f"synthetic/{name}_{self._mark}"), "hist:keys=isa,reason:vals=hitcount,ns")
        begin = "hist:keys=common_pid:isa=isa,reason=exit_reason,begin=common_timestamp:clock=mono"
        end = "hist:keys=common_pid:was_isa=$isa,was_reason=$reason,ns=common_timestamp-$begin:clock=mono"
        end += f":onmatch(kvm.kvm_exit).{_ENDED}_{self._mark}($was_isa,$was_reason,$ns)"
        leave = "hist:keys=prev_pid:left=common_timestamp:clock=mono"
        back = "hist:keys=next_pid:of_isa=$isa,of_reason=$reason,away=common_timestamp-$left:clock=mono"
        back += f":onmatch(sched.sched_switch).{_AWAY}_{self._mark}($of_isa,$of_reason,$away)"
        _write(self._file("kvm/kvm_exit"), f"{begin} if {_one_of('common_pid', threads)}")
        _write(self._file("sched/sched_switch"), f"{leave} if {_one_of('prev_pid', threads)}")
        _write(self._file("sched/sched_switch"), f"{back} if {_one_of('next_pid', threads)}")
        _write(self._file("kvm/kvm_entry"), f"{end} if {_one_of('common_pid', threads)}")

    def _file(self, event: str, name: str = "trigger") -> Path:
        return self._instance / "events" / event / name

    def read(self) -> list[ExitCount]:
        """Exits so far that have ended, with their time in the host. Times are modulo 2⁶⁴. Raises RuntimeError."""
        files = [self._file(f"synthetic/{name}_{self._mark}", "hist") for name in (_ENDED, _AWAY)]
        try:
            ended, away = (file.read_text(encoding="utf-8") for file in files)
        except OSError as error:
            raise RuntimeError(f"{error.filename}: {error.strerror}") from error
        return counts(ended, away, self._names)

    def close(self) -> None:
        """Stop tracing and leave the kernel as it was."""
        _remove(self._root, self._instance)


class TracedExits:
    """The exits of this machine's guests that an agent traces, one trace at a time."""

    def __init__(self, process_of: Callable[[str, GuestAddress | None], str]) -> None:
        """`process_of`: the PID of a guest, by its name and, if libvirt does not run it, its address."""
        self.process_of = process_of
        self.trace: ExitTrace | None = None

    def obstacle(self) -> dict[str, str]:
        """Why exits cannot be traced on this machine, and what to do; both empty where they can. Removes what killed
        agents have left.
        """
        remove_left()
        why, way_out = obstacle()
        return {"why": why, "way_out": way_out}

    def start(self, domains: Sequence[str], guests: Mapping[str, GuestAddress] | None = None) -> int:
        """Begin to trace the exits of these guests; return the number of their virtual CPUs. `guests`: the addresses of
        those that libvirt does not run. Raises RuntimeError where the kernel refuses.
        """
        self.stop()
        remove_left()
        addresses = [(name, (guests or {}).get(name)) for name in domains]
        threads = [
            thread
            for name, address in addresses
            for thread in vcpu_threads(self.process_of(name, address), (address or {}).get("vcpus", ()))
        ]
        self.trace = ExitTrace(threads)
        return len(threads)

    def read(self) -> list[ExitCount]:
        """The exits since the trace began. Raises RuntimeError without one."""
        if self.trace is None:
            raise RuntimeError("exits are not traced")
        return self.trace.read()

    def stop(self) -> None:
        """End the trace, if there is one."""
        trace, self.trace = self.trace, None
        if trace:
            trace.close()


def _one_of(field: str, threads: Iterable[int]) -> str:
    """A filter of the kernel's events."""
    return "||".join(f"{field}=={thread}" for thread in threads)


def _write(file: Path, text: str) -> None:
    """Write one line as a whole, at the end of what a file of the kernel holds."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, f"{text}\n".encode())
    finally:
        os.close(handle)


def _remove(folder: Path, instance: Path) -> None:
    """Remove an instance with its triggers and its synthetic event, as far as they exist."""
    mark = instance.name.replace("vmtoll-", "").replace("-", "_")
    ours = [f"{name}_{mark}" for name in (_ENDED, _AWAY)]
    # Triggers hold those whose variables they use, and all hold the instance: the last one goes first.
    for name in ("kvm/kvm_entry", "sched/sched_switch", "kvm/kvm_exit", *(f"synthetic/{event}" for event in ours)):
        file = instance / "events" / name / "trigger"
        lines = [line for line in read(str(file)).splitlines() if line.startswith("hist:")]
        for line in sorted(lines, key=lambda line: "onmatch" not in line):
            with contextlib.suppress(OSError):
                _write(file, "!" + re.sub(r" \[\w+\]$", "", line))
    with contextlib.suppress(FileNotFoundError):
        instance.rmdir()
    known = read(str(folder / "synthetic_events"))
    for event in ours:
        if event in known:
            with contextlib.suppress(OSError):
                _write(folder / "synthetic_events", f"!{event}")


def left(root: Path = Path("/")) -> list[Path]:
    """The instances that agents which were killed have left."""
    folder = tracefs(root)
    instances = sorted((folder / "instances").glob("vmtoll-*")) if folder else []
    return [path for path in instances if (match := _LEFT.fullmatch(path.name)) and not _runs(*match.groups())]


def remove_left(root: Path = Path("/")) -> list[str]:
    """Remove what killed agents have left; the names of it. Raises OSError when the kernel refuses."""
    paths = left(root)
    for path in paths:
        _remove(path.parent.parent, path)
    return [path.name for path in paths]


def _runs(pid: str, start: str) -> bool:
    return stat_fields(pid)[19:20] == [start]
