"""The counting machine: an emulated AMD host, from the lab's own image of virtual machines, with QEMU's plugin.

Its first process, vmtoll/builds/instructions/host.sh, measures each side and resets the machine. No system boots: what
runs in a window is the server, its kernels, QEMU and the client.
"""

import io
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtoll.builds import counting
from vmtoll.counting.kernel import GUEST_MODULES, HOST_MODULES, Kernel, of_image, of_package
from vmtoll.counting.sides import Side
from vmtoll.counting.windows import Progress, Window, read_exits, read_progress, read_windows
from vmtoll.model.errors import UserError

MEMORY_MIB = 2304
BODIES = {"4k.html": 4096, "64k.html": 65536}
# A machine hangs if it executes this many instructions without a mark or a console line, or none in _LOOKS looks.
# Both hold however slow this machine is. The longest stretch, the host's boot, takes 6.3e9 instructions.
MOST_WITHOUT_SIGN = 30_000_000_000
_LOOK_S, _LOOKS = 2.0, 300
_INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p /proc /sys /dev /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
if [ -d /vmtoll ]; then for module in /vmtoll/*.ko; do insmod "$module"; done; else modprobe -a virtio_blk ext4; fi
until [ -b /dev/vda ]; do sleep 1; done
mount -t ext4 /dev/vda /root
for each in proc:proc sysfs:sys devtmpfs:dev tmpfs:tmp; do mount -t "${each%:*}" none "/root/${each#*:}"; done
exec run-init /root /bin/sh -c 'cd /tmp && tar -xmf /dev/vdb && exec bash ./SCRIPT' </dev/console >/dev/console 2>&1
"""


@dataclass(frozen=True)
class Parts:
    """What a counting machine is made of. `qemu`: emulates it; `disk`: of virtual machines, in the image's folder;
    `programs`: the folder of vmtoll.builds.counting; `server`: lighttz; `kernel`, `guest_kernel`: in place of the
    image's; `host_qemu`: the program that runs the guest, in place of the image's.
    """

    qemu: Path
    disk: Path
    programs: Path
    server: bytes
    kernel: Kernel | None = None
    guest_kernel: Kernel | None = None
    host_qemu: Path | None = None

    @property
    def image(self) -> Path:
        """The folder of the image, with its kernel and modules."""
        return self.disk.parent

    @property
    def guest(self) -> Kernel:
        """The guest's kernel."""
        return self.guest_kernel or of_image(self.image)


@dataclass(frozen=True)
class Replacements:
    """A user's files that replace parts of the image: Debian packages of kernels, and the QEMU that runs the guest."""

    kernel: Path | None = None
    guest_kernel: Path | None = None
    qemu: Path | None = None

    @property
    def names(self) -> dict[str, str]:
        """Part → file name, for the record."""
        return {part: file.name for part, file in vars(self).items() if file}

    def unpacked(self, parts: Parts, folder: Path) -> Parts:
        """The parts with these files. Unpacks the kernels into the folder. Raises UserError for another package."""
        kernel = of_package(self.kernel, folder / "host") if self.kernel else None
        guest_kernel = of_package(self.guest_kernel, folder / "guest") if self.guest_kernel else None
        return replace(parts, kernel=kernel, guest_kernel=guest_kernel, host_qemu=self.qemu)


@dataclass(frozen=True)
class Load:
    """Requests of each side: without a mark, then in each of the windows."""

    warm_up: int = 400
    requests: int = 400
    windows: int = 5


@dataclass(frozen=True)
class Boot:
    """What one boot counted. `result`: `passed`, or why it ended early; `windows`: those that were finished, of all
    sides in their order, the last one of each side with the histogram of exits; `exits`: of these, by reason.
    """

    seed: int
    result: str
    windows: Sequence[Window]
    exits: Sequence[dict[str, int]]
    console: str
    took_s: float

    @property
    def host(self) -> str:
        """The host's kernel and its QEMU: `6.12.118, QEMU emulator version 10.0.13 (…)`."""
        return next((line[5:].strip() for line in self.console.splitlines() if line.startswith("HOST ")), "")


def cpio(files: Sequence[tuple[str, int, bytes]]) -> bytes:
    """An initial RAM disk of these files: name, mode, content."""
    archive = bytearray()
    for number, (name, mode, content) in enumerate([*files, ("TRAILER!!!", 0, b"")], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += bytes(-len(archive) % 4) + content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def host_init(script: str) -> tuple[str, int, bytes]:
    """The first process of a host, for its initial RAM disk: it finds its disk, and hands over to this script of the
    second one.
    """
    return ("host-init", 0o100755, _INIT.replace("SCRIPT", script).encode())


def write_disks(parts: Parts, sides: Sequence[Side], load: Load, folder: Path) -> None:
    """Write the host's initial RAM disk, host.initrd, and job.tar, which is its second disk."""
    bodies = {f"www/{name}": b"vmtoll\n".ljust(size, b".") for name, size in BODIES.items()}
    guest = [(name, 0o40755, b"") for name in ("dev", "proc", "www")]
    guest += [("init", 0o100755, (parts.programs / "guest").read_bytes()), ("lighttz", 0o100755, parts.server)]
    guest += [(name, 0o100644, body) for name, body in bodies.items()]
    modules = parts.guest.modules(GUEST_MODULES).values()
    guest += [(f"{number}.ko", 0o100644, content) for number, content in enumerate(modules)]
    initrd = (parts.image / "initrd.img").read_bytes()
    initrd += bytes(-len(initrd) % 512) + cpio([host_init("host.sh"), *_host_modules(parts.kernel)])
    (folder / "host.initrd").write_bytes(initrd)
    settings = f"WARM_UP={load.warm_up} REQUESTS={load.requests} WINDOWS={load.windows}\n"
    files = {
        "host.sh": (counting.RECIPE / "host.sh").read_bytes(),
        "plan.sh": (settings + "".join(f"{side.line}\n" for side in sides)).encode(),
        "client": (parts.programs / "client").read_bytes(),
        "lighttz": parts.server,
        "kernel": parts.guest.vmlinuz.read_bytes(),
        "guest.initrd": cpio(guest),
        **bodies,
        **({"qemu": parts.host_qemu.read_bytes()} if parts.host_qemu else {}),
    }
    with tarfile.open(folder / "job.tar", "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))


def _host_modules(kernel: Kernel | None) -> list[tuple[str, int, bytes]]:
    """The modules of a kernel that replaces the image's, as files of the host's initial RAM disk. host-init loads them
    in the order of their names.
    """
    if kernel is None:
        return []
    modules = kernel.modules(HOST_MODULES).items()
    files = [
        (f"vmtoll/{number:02d}-{name}.ko", 0o100644, content) for number, (name, content) in enumerate(modules)
    ]  # fmt: skip
    return [("vmtoll", 0o40755, b""), *files]


def command(parts: Parts, sides: Sequence[Side], seed: int, folder: Path, *, profile: bool) -> list[str]:
    """The command line of the machine. Its virtual clock counts instructions, so its timers do not depend on load."""
    parameters = f"console=ttyS0 quiet tsc=reliable nokaslr panic=1 rdinit=/host-init {sides[0].host_parameters}"
    plugin = f"{parts.programs}/counter,out={folder}/counts,client={'-'.join(f'{end:x}' for end in counting.CLIENT_AT)}"
    argv = [str(parts.qemu), "-M", "q35", "-L", "/usr/share/qemu", "-L", "/usr/share/seabios"]
    argv += ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-rtc", "base=2026-01-01,clock=vm"]
    argv += ["-seed", str(seed), "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MIB)]
    argv += ["-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{folder}/console.log"]
    kernel = parts.kernel.vmlinuz if parts.kernel else parts.image / "vmlinuz"
    argv += ["-kernel", str(kernel), "-initrd", f"{folder}/host.initrd", "-append", parameters.strip()]
    argv += ["-drive", f"file={parts.disk},if=virtio,snapshot=on"]
    argv += ["-drive", f"file={folder}/job.tar,format=raw,if=virtio,readonly=on"]
    if profile:
        plugin += f",profile={folder}/profile"
        argv += ["-drive", f"file={folder}/symbols,format=raw,if=virtio"]
    return [*argv, "-plugin", plugin]


def boot(
    parts: Parts, sides: Sequence[Side], load: Load, seed: int, folder: Path, *, profile: bool = False,
    watch: Callable[[Progress], None] = lambda _: None,
) -> Boot:  # fmt: skip
    """Boot the machine in this folder, let it measure the sides, which have the host's parameters in common.

    Raises UserError when QEMU does not run it.
    """
    began = time.monotonic()
    write_disks(parts, sides, load, folder)
    (folder / "console.log").touch()
    (folder / "symbols").write_bytes(bytes(8 << 20))
    with (
        (folder / "qemu.log").open("wb") as log,
        subprocess.Popen(
            command(parts, sides, seed, folder, profile=profile), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as machine,
    ):
        try:
            hung = _hangs(machine, folder, watch)
        finally:
            machine.kill()
    console = (folder / "console.log").read_text(errors="replace")
    if not console:
        message = (folder / "qemu.log").read_text(errors="replace").strip() or "printed nothing"
        raise UserError(f"the counting machine did not boot: {parts.qemu}: {message.splitlines()[-1]}")
    counts = (folder / "counts").read_bytes()
    results = [line[7:].strip() for line in console.splitlines() if line.startswith("RESULT ")]
    result = results[0] if results else hung or f"QEMU ended (exit code {machine.returncode})"
    return Boot(seed, result, read_windows(counts), read_exits(console), console, time.monotonic() - began)


def _hangs(machine: "subprocess.Popen[bytes]", folder: Path, watch: Callable[[Progress], None]) -> str:
    """Wait for the machine; return why it counts as hung, empty if it ended."""
    sign, executed_at_sign, last, idle_looks = (0, 0), 0, Progress(0, 0), 0
    while True:
        try:
            machine.wait(_LOOK_S)
            return ""
        except subprocess.TimeoutExpired:
            counts = folder / "counts"
            with counts.open("rb") if counts.exists() else io.BytesIO() as stream:
                progress = read_progress(stream.read(64))
        watch(progress)
        idle_looks = idle_looks + 1 if progress == last else 0
        last, now = progress, (progress.marks, (folder / "console.log").stat().st_size)
        if now != sign:
            sign, executed_at_sign = now, progress.executed
        if progress.executed - executed_at_sign > MOST_WITHOUT_SIGN:
            return f"hung: {MOST_WITHOUT_SIGN:.0e} instructions without a sign"
        if idle_looks > _LOOKS:
            return "hung: it executes nothing"
