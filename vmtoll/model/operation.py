"""An operation on a machine under load: a pause, a snapshot, a backup, and what clients notice of it."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from vmtoll.model.document import Document

Deed = Literal["pause", "snapshot", "snapshot-external", "backup", "save", "balloon", "migrate", "command"]
# What each operation needs besides `do`; it takes no other of these keys.
_KEYS: dict[str, tuple[str, ...]] = {
    "pause": ("for_s",), "snapshot": (), "snapshot-external": (), "backup": (), "save": (),
    "balloon": ("for_s", "memory_mib"), "migrate": ("to",), "command": ("command",),
}  # fmt: skip


class Operation(Document):
    """An operation in the middle of each measured load, as a separate environment."""

    of: str = Field(description="environment whose machine it happens to, and which it is compared with")
    do: Deed = Field(
        description="`pause`; `snapshot` with the memory, `snapshot-external` of the disks; `backup` of the disks; "
        "`save` to a file and restore; `balloon`; `migrate` to another KVM host; `command`"
    )
    on: Literal["kvm_host", "guest"] = Field(
        default="kvm_host", description="where a `command` runs: the guest's KVM host, or the machine under test itself"
    )
    at_s: float = Field(gt=0, description="when it begins, after the first request of the measured load")
    for_s: float | None = Field(default=None, gt=0, description="`pause`, `balloon`: how long")
    memory_mib: int | None = Field(default=None, gt=0, description="`balloon`: the guest's memory during it")
    to: str = Field(default="", description="`migrate`: inventory name of the KVM host that the guest moves to")
    bandwidth_mib_per_s: int | None = Field(
        default=None, gt=0, description="`migrate`: most that it may send; default: libvirt's own"
    )
    auto_converge: bool = Field(
        default=False, description="`migrate`: slow the guest down if it writes faster than its memory is sent"
    )
    command: str = Field(default="", description="`command`: what the shell there runs")
    revert: str = Field(default="", description="`command`: what undoes it, after the load and after a kill")
    limit_s: float = Field(default=120.0, gt=0, description="time limit, wall clock")

    @model_validator(mode="after")
    def _own_keys(self) -> Self:
        needed = _KEYS[self.do]
        for key in ("for_s", "memory_mib", "to", "command"):
            if bool(getattr(self, key)) != (key in needed):
                raise ValueError(f"{key}: `do: {self.do}` {'needs it' if key in needed else 'has none; leave it out'}")
        if self.for_s and self.for_s >= self.limit_s:
            raise ValueError(f"for_s: {self.for_s:g} s is not below limit_s, {self.limit_s:g} s; raise that")
        if self.do != "migrate" and (self.bandwidth_mib_per_s or self.auto_converge):
            key = "bandwidth_mib_per_s" if self.bandwidth_mib_per_s else "auto_converge"
            raise ValueError(f"{key}: `do: {self.do}` has none; leave it out")
        if self.revert and self.do != "command":
            raise ValueError(f"revert: vmtoll undoes `do: {self.do}` without it; leave it out")
        if self.on == "guest" and self.do != "command":
            raise ValueError(f"on: `do: {self.do}` is done on the KVM host; leave it out")
        return self


@dataclass(frozen=True, kw_only=True)
class MigrationFigures:
    """What libvirt says of a live migration."""

    total_s: float  # from its beginning to its end
    downtime_ms: float  # how long the guest ran on neither host
    # `memory_mib`, `disk_mib`: what was sent
    memory_mib: float
    disk_mib: float


@dataclass(frozen=True, kw_only=True)
class OperationTimes:
    """When an operation began and ended, in s from the first intended send of the load, on the client's clock."""

    begin_s: float
    end_s: float
    migration: MigrationFigures | None = None  # of a live migration
    is_over: bool = True  # the brownout ended before the load did; else it took longer
