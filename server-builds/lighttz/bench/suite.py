"""Today's peers: a root file system of a Debian suite in the cache, whose servers run by chroot with its libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "lighttz"
PACKAGES = ["nginx-light", "lighttpd", "apache2", "caddy", "haproxy"]
OPTIONAL = ["h2o"]  # not every suite has it
MOUNT = """
for folder in /dev /proc "$1"; do mkdir -p "$0$folder" && mount --rbind "$folder" "$0$folder" || exit; done
shift
exec chroot "$0" "$@"
"""


@dataclass(frozen=True)
class Suite:
    name: str
    root: Path

    def command(self, folder: Path, argv: list[str]) -> list[str]:
        """`argv` within the suite; it sees /dev, /proc and `folder` of this machine. The mounts end with it."""
        return ["unshare", "--mount", "sh", "-c", MOUNT, str(self.root), str(folder), *argv]

    def versions(self) -> dict[str, str]:
        """By package, without epoch and Debian's part."""
        query = ["chroot", str(self.root), "dpkg-query", "-W", "-f=${Package} ${source:Upstream-Version}\n"]
        out = subprocess.run([*query, *PACKAGES, *OPTIONAL], capture_output=True, text=True, check=False).stdout
        return dict(line.split() for line in out.splitlines() if len(line.split()) == 2)


def mirror() -> str:
    """Where this machine's own packages of Debian come from."""
    form = "$(ORIGIN) $(SUITE) $(CODENAME) $(REPO_URI)"
    query = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    out = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    rows = [line.split()[:4] for line in out.splitlines()]
    uris = [uri for origin, _, codename, uri in rows if origin == "Debian" and "-" not in codename]
    return uris[0] if uris else ""


def make(name: str) -> Suite | None:
    """The suite `name`; made once, in some minutes. None with a message where that is not possible."""
    root = CACHE / name
    if (root / "ready").exists():
        return Suite(name, root)
    uri = mirror()
    if os.geteuid() or shutil.which("mmdebstrap") is None or not uri:
        print(f"Debian {name} is left out: it takes root, mmdebstrap and apt sources of Debian.")
        return None
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    # Mirrors may be of another day: signatures are checked, dates are not.
    options = ["--aptopt=Acquire::Check-Valid-Until false", "--aptopt=APT::Install-Recommends false"]
    options += [f'--customize-hook=chroot "$1" apt-get -q -y install {package} || true' for package in OPTIONAL]
    command = ["mmdebstrap", "--mode=root", "--variant=essential", "--components=main", *options]
    print(f"mmdebstrap makes Debian {name} in {root}.", flush=True)
    done = subprocess.run(
        [*command, f"--include={','.join(PACKAGES)}", name, str(root), uri],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"Debian {name} is left out: mmdebstrap failed: {done.stderr[-300:]}")
        return None
    (root / "ready").touch()
    return Suite(name, root)
