"""A project folder, and three local machines with a real lighttz: no lab, no systemd."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ports import free_port
from vmtoll.builds import tools
from vmtoll.paths import PROJECT
from vmtoll.sites import build
from vmtoll.spec.catalog import Registry

LIGHTTZ = PROJECT / "server-builds" / "lighttz" / "build" / "lighttz"

SITE = {
    "description": "a few files",
    "seed": 1,
    "files": 12,
    "smallest_bytes": 2,
    "largest_bytes": 20000,
    "body": {"median_bytes": 800, "sigma": 1.0},
    "tail": {"share": 0.1, "from_bytes": 5000, "alpha": 1.1},
    "kinds": {"html": 2, "gif": 1, "jpeg": 1, "pdf": 1, "doc": 1},
    "popularity": {"zipf_exponent": 0.8, "lines": 40},
}
WORKLOAD = {
    "description": "two users",
    "site": "tiny",
    "tool": "siege",
    "crosscheck": "h2load",
    "users": 2,
    "keep_alive": True,
}
SERVER = """
description: a server
binary: /usr/sbin/server
templates: []
exec_start: /usr/sbin/server
"""
MAIL_SERVER = f"""{SERVER}
mail: {{domain: vmail.test, users: 10, owner: mail, greets: [25], configuration: /c, accounts: /a, mailboxes: /m,
       queue: /q, log: /l}}
"""
EXPERIMENT: dict[str, Any] = {
    "question": "does it work?",
    "purpose": "smoke",
    "environments": ["metal", "metal-two"],
    "servers": ["lighttz"],
    "workloads": ["tiny"],
    "blocks": 2,
    "warmup_s": 0.05,
    "duration_s": 0.1,
    "seed": 7,
    "noise_floor": {"environment": "metal", "servers": ["lighttz"]},
}


@pytest.fixture
def project(tmp_path: Path) -> Registry:
    """A project folder with the real tools, one site, one workload, one experiment, two servers."""
    root = tmp_path / "project"
    for folder in ("workloads/experiments", "workloads/sites", "vm-images/guests"):
        (root / folder).mkdir(parents=True)
    shutil.copytree(
        PROJECT / "vmtoll" / "loadgen",
        root / "vmtoll" / "loadgen",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for server in ("lighttz", "apache-prefork"):
        (root / "server-builds" / server).mkdir(parents=True)
        (root / "server-builds" / server / "server.yml").write_text(SERVER)
    (root / "vm-images/guests/metal-two.yml").write_text("description: this machine once more, in place of a guest\n")
    (root / "workloads/sites/tiny.yml").write_text(yaml.safe_dump(SITE))
    (root / "workloads/tiny.yml").write_text(yaml.safe_dump(WORKLOAD))
    (root / "workloads/experiments/tiny.yml").write_text(yaml.safe_dump(EXPERIMENT))
    return Registry(root)


@pytest.fixture
def inventory(tmp_path: Path, project: Registry) -> Path:
    """A client and two SUTs, all on this machine, each with a folder and a port of its own."""
    subprocess.run(["make", "-s", "-C", str(LIGHTTZ.parent.parent), "build/lighttz"], check=True)
    hosts: dict[str, dict[str, Any]] = {}
    for name in ("client", "metal", "metal-two"):
        root = tmp_path / name
        (root / "etc/vmtoll/servers").mkdir(parents=True)
        sites = root / "srv/vmtoll/sites"
        sites.mkdir(parents=True)
        build(project.site_file("tiny"), sites)
        port = free_port()
        (root / "lighttz.conf").write_text(f"listen = 127.0.0.1:{port}\nroot = {sites}\nworkers = 1\nuser = 0\n")
        # The servers' configurations must differ in root and port here, so vmtoll compares a file that does not.
        (root / "policy.conf").write_text("keepalive_requests 1000000;\n")
        command = [str(LIGHTTZ), "-c", f"{root}/lighttz.conf"]
        spec = {
            "name": "lighttz",
            "command": command,
            "binary": str(LIGHTTZ),
            "configs": [f"{root}/policy.conf"],
            "port": port,
            "workers": 1,
            "packages": [],
        }
        (root / "etc/vmtoll/servers/lighttz.json").write_text(json.dumps(spec))
        hosts[name] = {
            "ansible_connection": "local",
            "ansible_host": "127.0.0.1",
            "vmtoll_root": str(root),
            "vmtoll_http_port": port,
            "vmtoll_workers": 1,
        }
        if name != "client":
            hosts[name]["vmtoll_environment"] = name
    tree = {
        "all": {
            "children": {
                "clients": {"hosts": {"client": hosts["client"]}},
                "metal_hosts": {"hosts": {name: hosts[name] for name in ("metal", "metal-two")}},
            }
        }
    }
    path = tmp_path / "inventory.yml"
    path.write_text(yaml.safe_dump(tree))
    return path


Rewrite = Callable[..., Path]


@pytest.fixture
def rewrite(project: Registry) -> Rewrite:
    """Write experiment `tiny` with some keys changed; a value of None drops the key."""

    def change(**keys: Any) -> Path:
        data = {k: v for k, v in {**EXPERIMENT, **keys}.items() if v is not None}
        path = project.experiment_file("tiny")
        path.write_text(yaml.safe_dump(data))
        return path

    return change


@pytest.fixture
def unlimited_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept capacities although the client is at its limit: client and server share a few cores here."""
    monkeypatch.setattr("vmtoll.trial.capacity.LIMITING", frozenset())


@pytest.fixture
def load_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a client's load tools on PATH; build those that are not in the cache."""
    tools.build()
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in tools.binaries():
        (folder / tool["name"]).symlink_to(tool["binary"])
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
