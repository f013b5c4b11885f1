"""The commands of a live migration to another KVM host, for the shell of the guest's own, and those that bring it back.

At every moment one host has the guest, and with it the newest disk: the one on which it runs. Its own host forgets the
definition as soon as the guest has left, so that nobody can start it on the old disk, and gets the same one again.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from vmtoll.hypervisors.base import Line
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.migration_target import DiskCopy, disk_copies
from vmtoll.hypervisors.scripts import Script
from vmtoll.model.operation import MigrationFigures, Operation

# On the guest's own host: its definitions and a list of what was made on the target; only root reads them.
FOLDER = "/var/lib/vmtoll/migration-of-{domain}"
# A file for a serial console need not exist on the target.
_NO_CONSOLE_FILE = (
    r"/<\(serial\|console\) type='file'/,/<\/\(serial\|console\)>/"
    r"{s/<\(serial\|console\) type='file'/<\1 type='null'/;/<source path=/d}"
)
# Times in ms, amounts in MiB.
_UNITS = {"ms": 1.0, "B": 2.0**-20, "KiB": 2.0**-10, "MiB": 1.0, "GiB": 2.0**10, "TiB": 2.0**20}

_UNDO = """
[ -d "$folder" ] || exit 0
has() { names=$("$1" list --all --name) || exit 1; echo "$names" | grep -qxF -e "$domain"; }
state() {  # of a guest that may go while it is asked for
    if has "$1" && state=$("$1" domstate "$domain" 2>/dev/null); then echo "$state"
    elif has "$1"; then exit 1
    else echo absent; fi
}
# A guest that was made again since then has another UUID: it never moved.
if [ -s "$folder/inactive.xml" ] && uuid=$(here domuuid "$domain" 2>/dev/null); then
    grep -qF "<uuid>$uuid</uuid>" "$folder/inactive.xml" || { rm -rf -- "$folder"; exit 0; }
fi
rest() {
    n=0
    while job=$("$1" domjobinfo "$domain" 2>/dev/null) && ! echo "$job" | grep -q 'Job type: *None'; do
        "$1" domjobabort "$domain" 2>/dev/null
        [ $((n += 1)) -le 240 ] || { echo "its migration does not end" >&2; exit 1; }
        sleep 0.5
    done
}
end() {  # also of a guest that libvirt ends at the same time
    "$1" destroy "$domain" 2>/dev/null
    case $(state "$1") in absent | "shut off") ;; *) echo "$domain does not end" >&2; exit 1;; esac
}
come_back() {
    there migrate --live --persistent --undefinesource --copy-storage-all --abort-on-error \\
        --xml "$folder/live.xml" --persistent-xml "$folder/inactive.xml" "$domain" "$source" >/dev/null || exit 1
}
rest here
rest there
n=0
while h=$(state here) && t=$(state there) || exit 1; [ "$h/$t" = paused/paused ] && [ $((n += 1)) -le 60 ]; do
    sleep 0.5
done
case "$h/$t" in
    */running) [ "$h" != running ] || { echo "it runs on both hosts" >&2; exit 1; }
        [ "$h" != paused ] || end here
        come_back;;
    running/absent | "shut off/absent") ;;
    running/*) [ "$t" = "shut off" ] || end there
        ! has there || there undefine "$domain" --keep-nvram || exit 1;;
    paused/absent) here resume "$domain" || exit 1;;
    absent/paused) there resume "$domain" || exit 1
        come_back;;
    "absent/shut off" | "shut off/shut off" | "paused/shut off") [ "$h" != paused ] || end here
        there start "$domain" || exit 1
        come_back;;
    *) echo "here it is $h, there $t: run it where its disk is newest; $folder has its definition" >&2; exit 1;;
esac
! has there || { echo "the target still has it" >&2; exit 1; }
[ ! -e "$folder/autostart" ] || here autostart "$domain" || exit 1
[ ! -e "$folder/volumes" ] || while read -r file; do
    ! there vol-info "$file" </dev/null >/dev/null 2>&1 || there vol-delete "$file" </dev/null || exit 1
done <"$folder/volumes" || exit 1
rm -rf -- "$folder"
"""


def migration(operation: Operation, guest: LibvirtGuest, target: Line) -> Script:
    """The commands of a migration to `target`. Raises AgentError, with one sentence, if it cannot be; HostLostError."""
    copies = disk_copies(guest, target)
    folder = FOLDER.format(domain=re.sub(r"[^\w.-]", lambda found: f"%{ord(found[0]):x}", guest.name))
    source, uri = guest.host.host.libvirt_uri, target.host.migration_uri
    names = {"domain": guest.name, "folder": folder, "source": source, "target": uri}
    prelude = "LC_ALL=C; export LC_ALL; umask 077\n"
    prelude += "".join(f"{name}={shlex.quote(value)}\n" for name, value in names.items())
    prelude += 'here() { virsh -q -c "$source" "$@"; }\nthere() { virsh -q -c "$target" "$@"; }\n'
    return Script(prelude + _run(operation), prelude + _UNDO, prelude + _prepare(copies))


def _prepare(copies: Sequence[DiskCopy]) -> str:
    """Keeps the guest's definitions, and makes the disks on the target: without them libvirt would, at full size."""
    lines = [
        "set -e",
        'rm -rf -- "$folder"',
        'mkdir -p "$folder"',
        'here dumpxml "$domain" --inactive --security-info >"$folder/inactive.xml"',
        'here dumpxml "$domain" --migratable --security-info >"$folder/live.xml"',
        f'sed {shlex.quote(_NO_CONSOLE_FILE)} "$folder/live.xml" >"$folder/there.xml"',
        'if here dominfo "$domain" | grep -q "^Autostart: *enable"; then : >"$folder/autostart"; fi',
    ]
    for copy in copies:
        words = [copy.pool, PurePosixPath(copy.file).name, f"{copy.capacity_bytes}b"]
        lines.append(f'echo {shlex.quote(copy.file)} >>"$folder/volumes"')  # first, for a kill in between
        lines.append(
            f"there vol-create-as {shlex.join(words)} --allocation 0 --format {shlex.quote(copy.format)} >/dev/null"
        )
    return "\n".join(lines)


def _run(operation: Operation) -> str:
    options = f" --bandwidth {operation.bandwidth_mib_per_s}" if operation.bandwidth_mib_per_s else ""
    options += " --auto-converge" if operation.auto_converge else ""
    return (
        "here migrate --live --persistent --copy-storage-all --abort-on-error"
        f'{options} --xml "$folder/there.xml" "$domain" "$target" >/dev/null || exit 1\n'
        'here domjobinfo "$domain" --completed || :\n'
        'here undefine "$domain" --keep-nvram >/dev/null\n'
    )


def migration_figures(job_info: str) -> MigrationFigures | None:
    """What `virsh domjobinfo --completed` prints of a migration; None without its times."""
    lines = re.findall(r"^([^:\n]+): +([\d.]+) +(\S+) *$", job_info, re.MULTILINE)
    values = {name: float(value) * _UNITS[unit] for name, value, unit in lines if unit in _UNITS}
    if "Time elapsed" not in values or "Total downtime" not in values:
        return None
    return MigrationFigures(
        total_s=values["Time elapsed"] / 1000,
        downtime_ms=values["Total downtime"],
        memory_mib=values.get("Memory processed", 0.0),
        disk_mib=values.get("File processed", 0.0),
    )
