"""The servers of server-builds: compiled once, their files rendered once, packed into one archive for every SUT.

One archive and not a task for each file: on an emulated guest every Ansible task costs seconds.
"""

import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vmtoll import sources
from vmtoll.paths import CACHE, REPO, SERVER_BUILDS
from vmtoll.shell import UserError, run
from workloads.runner.sources import at_hand

SOURCES = REPO
ROOT = "/srv/vmtoll/sites"
FOLDER = "/etc/vmtoll/servers"


@dataclass(frozen=True)
class Policy:
    """What is alike for all servers of a lab."""

    port: int = 8080
    workers: int = 1
    access_log: bool = False


def catalog() -> list[dict[str, Any]]:
    """Return each server.yml with its folder's name added, sorted by name."""
    files = sorted(SERVER_BUILDS.glob("*/server.yml"))
    return [{**yaml.safe_load(file.read_text()), "name": file.parent.name} for file in files]


def archive(policy: Policy) -> Path:
    """Write the archive of everything that the servers need beside their packages; return its path.

    Files only, owned by root, with one fixed time: unpacking it again changes nothing.
    Raises UserError naming the server whose build or template fails, ExperimentError for a mistake in sources.yml.
    """
    files: dict[str, tuple[bytes, int]] = {}
    archives = at_hand(SOURCES)
    for server in catalog():
        if "source" in server and server["name"] not in archives:
            continue  # an experiment that names it skips it, with a sentence
        files |= _files(server, policy)
        if "source" in server:
            files[server["binary"]] = (sources.binary(server, archives[server["name"]]), 0o755)
    path = CACHE / "servers.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode, entry.uname, entry.gname = len(content), mode, "root", "root"
            tar.addfile(entry, io.BytesIO(content))
    partial.rename(path)
    return path


def _files(server: dict[str, Any], policy: Policy) -> dict[str, tuple[bytes, int]]:
    """Return {path on the SUT: (content, mode)} of one server."""
    name = server["name"]
    files = {
        f"{FOLDER}/{name}.json": (_description(server, policy), 0o644),
        f"/etc/systemd/system/vmtoll-{name}.service": (_render(SERVER_BUILDS / "unit.j2", server, policy), 0o644),
    }
    for template in server["templates"]:
        content = _render(SERVER_BUILDS / name / f"{template}.j2", server, policy)
        files[f"{FOLDER}/{name}/{Path(template).name}"] = (content, 0o644)
    if "build" in server:
        files[server["binary"]] = (_compiled(server), 0o755)
    return files


def _render(template: Path, server: dict[str, Any], policy: Policy) -> bytes:
    path = template.resolve()
    environment = Environment(
        loader=FileSystemLoader(path.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # configuration files, not HTML
    )
    try:
        text = environment.get_template(path.name).render(
            server=server,
            server_port=policy.port,
            server_workers=_workers(server, policy),
            server_root=ROOT,
            server_access_log=policy.access_log,
        )
    except Exception as error:
        raise UserError(f"{template}: {error}") from error
    return text.encode()


def _description(server: dict[str, Any], policy: Policy) -> bytes:
    """Tell the runner what it must know of a server (docs/design.md, "provisioning → runner")."""
    ports = server.get("ports", [policy.port])
    facts = {
        "name": server["name"],
        "unit": f"vmtoll-{server['name']}.service",
        "binary": server["binary"],
        "configs": [f"{FOLDER}/{server['name']}/{Path(template).name}" for template in server["templates"]],
        "port": ports[0],
        "ports": ports,
        "workers": _workers(server, policy),
        "packages": server.get("packages", []),
        **({"mail": server["mail"]} if "mail" in server else {}),
    }
    return (json.dumps(facts, indent=2) + "\n").encode()


def _workers(server: dict[str, Any], policy: Policy) -> int:
    """The lab's worker count, unless the server is a published configuration with one of its own."""
    return int(server.get("workers", policy.workers))


def _compiled(server: dict[str, Any]) -> bytes:
    folder: Path = SERVER_BUILDS / server["name"]
    run(["make", "-s", "-C", folder, server["build"]], log=CACHE / "logs" / f"build-{server['name']}.log")
    binary: Path = folder / server["build"]
    return binary.read_bytes()
