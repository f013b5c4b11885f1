"""Boot an emulated AMD host with a guest under KVM, and see whether the guest hangs: docs/qemu-nested-svm.md.

`python -m benchmarks.nested_svm QEMU [--seed N] [--limit SECONDS]` prints one line: the QEMU, the seed, the windows of
400 requests that the guest answered, the result. Needs the disk of virtual machines in the cache (`vmtoll lab up
--topology machines` makes it), gcc, and no root.
"""

import argparse
import io
import lzma
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from vmtoll.counting.machine import cpio, host_init
from vmtoll.paths import CACHE

HERE = Path(__file__).parent
MODULES = ("net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net")


def compiled(name: str, folder: Path) -> bytes:
    """A static program of one of the C files here."""
    subprocess.run(["gcc", "-O2", "-static", "-o", folder / name, HERE / f"{name}.c"], check=True)
    return (folder / name).read_bytes()


def make(image: Path, folder: Path) -> None:
    """Make the host's initial RAM disk, and the tar with what it runs, which is its second disk."""
    modules = next(iter((image / "root/lib/modules").iterdir())) / "kernel"
    inner = [("dev", 0o40755, b""), ("init", 0o100755, compiled("guest", folder))]
    inner += [(f"{Path(m).name}.ko", 0o100644, lzma.decompress((modules / f"{m}.ko.xz").read_bytes())) for m in MODULES]
    outer = (image / "initrd.img").read_bytes()
    outer += bytes(-len(outer) % 512) + cpio([host_init("outer.sh")])
    (folder / "outer.initrd").write_bytes(outer)
    files = {
        "client": compiled("client", folder),
        "guest.initrd": cpio(inner),
        "kernel": (image / "vmlinuz").read_bytes(),
        "outer.sh": (HERE / "outer.sh").read_bytes(),
    }
    with tarfile.open(folder / "job.tar", "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))


def boot(program: str, seed: int, limit_s: float) -> str:
    """Boot once; return the line of the table."""
    disks = sorted(CACHE.glob("images/*/machine-*.qcow2"), key=lambda file: file.stat().st_mtime)
    if not disks:
        raise SystemExit("no disk of virtual machines in the cache; make it with `vmtoll lab up --topology machines`")
    with tempfile.TemporaryDirectory() as name:
        folder, image, began = Path(name), disks[-1].parent, time.monotonic()
        make(image, folder)
        argv = [program, "-M", "q35", "-L", "/usr/share/qemu", "-L", "/usr/share/seabios"]
        argv += ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-rtc", "base=2026-01-01,clock=vm"]
        argv += ["-seed", str(seed), "-cpu", "max", "-smp", "1", "-m", "2560"]
        argv += ["-nodefaults", "-display", "none", "-no-reboot"]
        argv += ["-serial", f"file:{folder}/console.log", "-kernel", f"{image}/vmlinuz"]
        argv += ["-initrd", f"{folder}/outer.initrd"]
        argv += ["-append", "console=ttyS0 quiet tsc=reliable nokaslr panic=1 rdinit=/host-init"]
        argv += ["-drive", f"file={disks[-1]},if=virtio,snapshot=on"]
        argv += ["-drive", f"file={folder}/job.tar,format=raw,if=virtio,readonly=on"]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as machine:
            try:
                machine.wait(limit_s)
            except subprocess.TimeoutExpired:
                machine.kill()
        lines = (folder / "console.log").read_text(errors="replace").splitlines()
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    windows = sum(line.startswith("window ") for line in lines)
    results = [line.removeprefix("RESULT ") for line in lines if line.startswith("RESULT ")]
    result = results[0] if results else f"not over: {lines[-1] if lines else 'no output'}"
    return f"| {version} | {seed} | {windows} | {result} | {time.monotonic() - began:.0f} s |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qemu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=580)
    options = parser.parse_args()
    print(boot(options.qemu, options.seed, options.limit), flush=True)
