"""The servers of server-builds on this machine, as Debian packages them, with vmtoll's configuration in a folder."""

import json
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vmtoll.builds import certificate, servers
from vmtoll.builds.suite import guest_release
from vmtoll.spec.server import read_server


@pytest.fixture
def readable_folder() -> Iterator[Path]:
    """A folder that servers can read when they are no longer root; pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp(prefix="vmtoll-servers-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def install(name: str, root: Path, port: int, cache: Path) -> dict[str, Any]:
    """Write below `root` a server's files and its description for the agent; return the description.

    The description has no unit: the agent starts the command.
    """
    definition = read_server(name)
    files = certificate.files(cache) | servers._files(definition, servers.Policy(port=port), guest_release())
    for path, (content, mode) in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_rebased(content.decode(), root).encode() if mode == 0o644 else content)
        file.chmod(mode)
    (root / f"run/vmtoll-{name}").mkdir(parents=True, exist_ok=True)
    description = root / f"etc/vmtoll/servers/{name}.json"
    spec: dict[str, Any] = json.loads(description.read_text())
    del spec["unit"]
    spec["command"] = shlex.split(_rebased(definition.exec_start, root))
    # Paths and ports differ between the machines of a test, so vmtoll compares a file that does not.
    spec["configs"] = [str(root / certificate.CERTIFICATE.lstrip("/"))]
    description.write_text(json.dumps(spec))
    return spec


def _rebased(text: str, root: Path) -> str:
    for folder in ("/etc/vmtoll", "/srv/vmtoll", "/run/vmtoll-", "/var/log/vmtoll"):
        text = text.replace(folder, f"{root}{folder}")
    return text


def wait_for(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait until a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:g} s"
        time.sleep(0.01)
