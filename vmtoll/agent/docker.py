"""Docker in podman's place: a runtime by the name that dockerd has for it, and a root file system as an image."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOTFS_LABEL = "vmtoll.rootfs"  # of an image: the folder that it was imported from
_IMPORT_S = 600.0


def registered_name(registered: Mapping[str, Any], program: str, flags: Sequence[str]) -> str:
    """The name that dockerd has for this program with exactly these flags: they stand in its daemon.json. `registered`:
    what `docker info` says of `Runtimes`. Raises RuntimeError with what to write there.
    """
    for name in sorted(registered, reverse=True):  # `runc` before `io.containerd.runc.v2`
        path = shutil.which(registered[name].get("path") or name)
        if path and Path(path).samefile(program) and _flags(registered[name].get("runtimeArgs") or ()) == set(flags):
            return name
    name = re.sub(r"[^a-z0-9]+", "-", "-".join([Path(program).name, *flags]).lower())
    entry = json.dumps({name: {"path": program, "runtimeArgs": [f"--{flag}" for flag in flags]}})
    raise RuntimeError(
        f'Docker has no runtime {program} with {" ".join(flags) or "no flags"}; write "runtimes": {entry} into '
        "/etc/docker/daemon.json, then run `systemctl reload docker`"
    )


def _flags(args: Sequence[str]) -> set[str]:
    """`--platform systrap`, or `--platform=systrap`, as `platform=systrap`."""
    flags: list[str] = []
    for arg in args:
        if arg.startswith("-") or not flags:
            flags.append(arg.lstrip("-"))
        else:
            flags[-1] += f"={arg}"
    return set(flags)


def imported_image(root: Path, call: Callable[..., str]) -> str:
    """The image of this root file system, which Docker has no `--rootfs` for: imported once, and again after the folder
    has changed. `call`: runs Docker. `vmtoll unprovision` removes it. Raises RuntimeError.
    """
    image = f"vmtoll-rootfs:{_state(root)}"
    label = f"{ROOTFS_LABEL}={root}"
    if not call("image", "ls", "--quiet", image):
        for old in call("image", "ls", "--quiet", f"--filter=label={label}").split():
            call("image", "rm", "--force", old)
        tar = ["tar", "--create", "--one-file-system", "--numeric-owner", f"--directory={root}", "."]
        with subprocess.Popen(tar, stdout=subprocess.PIPE) as archive:
            call("import", f"--change=LABEL {label}", "-", image, limit_s=_IMPORT_S, stdin=archive.stdout)
        if archive.returncode:
            call("image", "rm", "--force", image)
            raise RuntimeError(f"{root}: tar cannot read the whole root file system")
    return image


def _state(root: Path) -> str:
    """A digest of every file's name, mode, size and time of its last change."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for path in (Path(folder, name) for name in sorted([*folders, *files])):
            stat = path.lstat()
            digest.update(os.fsencode(path) + f"\0{stat.st_mode} {stat.st_size} {stat.st_ctime_ns}\n".encode())
    return digest.hexdigest()[:16]
