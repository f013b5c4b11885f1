"""The commands of an operation on a guest, for the shell of its KVM host, and those that undo what it may have left."""

import re
import shlex

from vmtoll.agent.virsh import called
from vmtoll.hypervisors.base import Guest, Line
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.libvirt_xml import parsed
from vmtoll.hypervisors.migration import migration
from vmtoll.hypervisors.migration_target import target_name, written_disks
from vmtoll.hypervisors.scripts import Script
from vmtoll.model.errors import AgentError
from vmtoll.model.operation import Operation

_NAME = "vmtoll-during"  # of a snapshot, and of the files that an operation makes beside a guest's disks


def script(operation: Operation, guest: Guest, target: Line | None = None) -> Script:
    """The commands of an operation on a running guest, which is asked for what they need to know. `target`: the host
    that it moves to. Raises AgentError for a guest that it cannot be done to, HostLostError.
    """
    if operation.do == "command":
        return Script(operation.command, operation.revert)
    if not isinstance(guest, LibvirtGuest):
        raise AgentError(
            f"{guest.name}: vmtoll does `{operation.do}` on guests of libvirt alone; give `do: command` with the "
            "commands of what runs this guest"
        )
    if target:
        return migration(operation, guest, target)
    if operation.do in ("snapshot", "snapshot-external", "backup"):
        _refuse_disks(operation, guest)
    virsh, domain = shlex.join(guest.virsh.words()), shlex.join(called(guest.name))
    of_libvirt = {
        "pause": _pause, "snapshot": _snapshot, "snapshot-external": _external, "backup": _backup, "save": _save,
    }  # fmt: skip
    if operation.do == "balloon":
        made = _balloon(operation, virsh, domain, _memory_kib(guest))
    else:
        made = of_libvirt[operation.do](operation, virsh, domain)
    # What virsh prints is compared with English words.
    return Script(*(f"LC_ALL=C; export LC_ALL; {command}" for command in (made.run, made.undo)))


def _refuse_disks(operation: Operation, guest: Guest) -> None:
    """Raise AgentError for a disk that libvirt cannot do it to."""
    for disk in written_disks(parsed(guest.definition())):
        its_disk = f"{guest.name}: its disk {target_name(disk)}"
        if disk.get("type") != "file":
            raise AgentError(f"{its_disk} is not a file, which `{operation.do}` needs; use `do: command`")
        driver = disk.find("driver")
        kind = driver.get("type", "raw") if driver is not None else "raw"
        if operation.do == "snapshot" and kind != "qcow2":
            raise AgentError(
                f"{its_disk} is {kind}, and a snapshot with the memory needs qcow2; use `snapshot-external`"
            )


def _pause(operation: Operation, virsh: str, domain: str) -> Script:
    """The connection that resumes is made during the pause: to connect takes tens of milliseconds. A virsh that reads
    its commands ends well whatever became of them, so the first one has its own process.
    """
    suspend = f"{virsh} suspend {domain} && : >paused && sleep {operation.for_s}"
    name = re.sub(r'(["\\])', r"\\\1", shlex.split(domain)[-1])
    resume = shlex.quote(f'resume --domain "{name}"')
    return Script(
        f'rm -f paused; ({suspend}; printf "%s\\n" {resume}) | {virsh} && '
        f'[ -e paused ] && [ "$({virsh} domstate {domain})" = running ]',
        f'state=$({virsh} domstate {domain}) || exit 1; [ "$state" != paused ] || {virsh} resume {domain}',
    )


def _is_idle(virsh: str, domain: str) -> str:
    """Succeeds while libvirt has no job on the guest."""
    return f"{virsh} domjobinfo {domain} | grep -q 'Job type: *None'"


def end_job(virsh: str, domain: str) -> str:
    """Ends a job of ours that goes on after its virsh was killed, and waits up to two minutes for its end."""
    is_idle = _is_idle(virsh, domain)
    return (
        f"{is_idle} || {virsh} domjobabort {domain} || :; n=0; "
        f"until {is_idle} || [ $((n += 1)) -gt 240 ]; do sleep 0.5; done; "
    )


def _snapshot(_: Operation, virsh: str, domain: str) -> Script:
    return Script(
        f"{virsh} snapshot-create-as {domain} {_NAME}",
        f"{end_job(virsh, domain)}names=$({virsh} snapshot-list {domain} --name) || exit 1; "
        f'! echo "$names" | grep -qx {_NAME} || {virsh} snapshot-delete {domain} {_NAME}',
    )


def _disks(virsh: str, domain: str) -> str:
    """Prints the target and the file of each disk that is one; fails where libvirt does not answer."""
    return (
        f'list=$({virsh} domblklist --details {domain}) || exit 1; echo "$list" | '
        "sed -n 's/^ *file  *disk  *\\([^ ]*\\)  *\\(\\/.*[^ ]\\) *$/\\1 \\2/p'"
    )


def _external(_: Operation, virsh: str, domain: str) -> Script:
    """`--shallow`: into the file right below, never into an image that other guests share."""
    return Script(
        f"{virsh} snapshot-create-as {domain} {_NAME} --disk-only --atomic --no-metadata",
        f"{_disks(virsh, domain)} | while read -r target file; do case $file in *.{_NAME}) "
        f'{virsh} blockjob {domain} "$target" --abort </dev/null >/dev/null 2>&1 || :; '
        f'{virsh} blockcommit {domain} "$target" --active --shallow --wait --pivot </dev/null && '
        'rm -f -- "$file" || exit 1;; esac; done',
    )


def _backup(_: Operation, virsh: str, domain: str) -> Script:
    xml = (
        "{ echo '<domainbackup><disks>'; while read -r target file; do "
        f"echo \"<disk name='$target' type='file'><target file='$file.{_NAME}'/></disk>\"; done; "
        "echo '</disks></domainbackup>'; }"
    )
    return Script(
        f"({_disks(virsh, domain)}) | {xml} >backup.xml && {virsh} backup-begin {domain} backup.xml && "
        f"until {_is_idle(virsh, domain)}; do sleep 0.2; done && "
        f"{virsh} domjobinfo {domain} --completed --keep-completed | grep -q 'Job type: *Completed'",
        f"files=$({_disks(virsh, domain)} | sed 's/^[^ ]* //') || exit 1; [ -n \"$files\" ] || exit 0; "
        f'echo "$files" | while read -r file; do [ ! -e "$file.{_NAME}" ] || echo yes; done | grep -q yes || exit 0; '
        f'{end_job(virsh, domain)}echo "$files" | while read -r file; do rm -f -- "$file.{_NAME}"; done',
    )


def _save(_: Operation, virsh: str, domain: str) -> Script:
    state = f"state=$({virsh} domstate {domain}) || exit 1"
    return Script(
        f"{virsh} managedsave {domain} && {virsh} start {domain}",
        f"{state}; [ \"$state\" = 'shut off' ] || {{ {end_job(virsh, domain)}:; }}; {state}; "
        f"case $state in running) ;; paused) {virsh} resume {domain};; *) {virsh} start {domain};; esac",
    )


def _balloon(operation: Operation, virsh: str, domain: str, memory_kib: int) -> Script:
    set_memory = f"{virsh} setmem {domain} --live"
    now = f"$({virsh} dominfo {domain} | sed -n 's/^Used memory: *\\([0-9]*\\).*/\\1/p')"
    return Script(
        f"{set_memory} {operation.memory_mib}M && sleep {operation.for_s} && {set_memory} {memory_kib}",
        f'now={now}; [ -n "$now" ] || exit 1; [ "$now" = {memory_kib} ] || {set_memory} {memory_kib}',
    )


def _memory_kib(guest: LibvirtGuest) -> int:
    """The memory that a guest has. Raises AgentError for one without a balloon."""
    definition = parsed(guest.definition())
    balloon = definition.find("devices/memballoon")
    if balloon is None or balloon.get("model") == "none":
        raise AgentError(f"{guest.name}: it has no balloon (memballoon), so its memory cannot change")
    info = guest.virsh("dominfo", *called(guest.name))
    found = re.search(r"^Used memory:\s+(\d+)", info, re.MULTILINE)
    if found is None:
        raise AgentError(f"{guest.name}: libvirt does not say how much memory it has")
    return int(found[1])
