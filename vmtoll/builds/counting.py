"""What `vmtoll count` compiles once: QEMU's plugin, the client, the first process of the guest."""

import hashlib
import platform
from pathlib import Path

from vmtoll.files import lock, replacing
from vmtoll.paths import CACHE, PACKAGE
from vmtoll.shell import run

RECIPE = PACKAGE / "builds" / "instructions"
# The client's code has addresses that no other program has, by which the plugin tells it from the server.
CLIENT_AT = (0x10000000, 0x20000000)
_FLAGS = {
    "counter": ("-shared", "-fPIC", "-fvisibility=hidden"),
    "client": ("-static", "-no-pie", f"-Wl,-Ttext-segment={CLIENT_AT[0]:#x}"),
    "guest": ("-static",),
}


def ensure() -> Path:
    """Compile the programs unless the cache has them; return their folder. Raises UserError with gcc's last line."""
    digest = hashlib.sha256(f"{_FLAGS} {platform.libc_ver()}".encode())
    for name in _FLAGS:
        digest.update((RECIPE / f"{name}.c").read_bytes())
    folder = CACHE / "tools" / f"counting-{digest.hexdigest()[:16]}"
    with lock("counting"):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with replacing(folder) as draft:
                draft.mkdir()
                for name, flags in _FLAGS.items():
                    run(["gcc", "-O2", "-Wall", *flags, "-o", draft / name, RECIPE / f"{name}.c"])
    return folder
