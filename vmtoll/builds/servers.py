"""The servers of server-builds: compile them, render their files, and pack them into one archive for every SUT.

One archive instead of a task for each file, because on an emulated guest every Ansible task costs seconds.
"""

import hashlib
import io
import json
import shlex
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vmtoll.builds import certificate, sources
from vmtoll.files import replacing
from vmtoll.model.errors import UserError
from vmtoll.model.release import Release
from vmtoll.model.transport import CIPHER, GROUP, PROTOCOL, tls_port
from vmtoll.paths import CACHE, INSTALLED, SERVER_BUILDS
from vmtoll.search_path import servers as found
from vmtoll.shell import run
from vmtoll.spec.catalog import Registry
from vmtoll.spec.server import FOLDER, ServerDefinition, Tls, read_servers, template_file
from vmtoll.spec.sources import read_archives

SOURCES = Registry().sources_folder()
ROOT = "/srv/vmtoll/sites"
UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class Policy:
    """Settings that all servers of a lab share."""

    port: int = 8080
    workers: int = 1
    access_log: bool = False

    @property
    def tls(self) -> dict[str, str | int]:
        """Values for the template of a server that speaks TLS."""
        return {
            "port": tls_port(self.port, resumption=False),
            "resumption_port": tls_port(self.port, resumption=True),
            "certificate": certificate.CERTIFICATE,
            "key": certificate.KEY,
            "protocol": PROTOCOL,
            "cipher": CIPHER,
            "group": GROUP,
        }

    @property
    def metrics_port(self) -> int:
        """Loopback port on which a server reports its metrics."""
        return self.port - 1


def definitions() -> list[ServerDefinition]:
    """Return every server, sorted by name. Raises ExperimentError naming file and key."""
    return read_servers(SERVER_BUILDS)


def servers_of_release(release: Release) -> list[ServerDefinition]:
    """Return the servers that a release can have: all except those whose `not_in` names it."""
    return [server for server in definitions() if release.suite not in server.not_in]


def catalog(release: Release) -> list[dict[str, Any]]:
    """Return the servers of a release as Ansible needs them: the keys of each server.yml and its folder's name."""
    return [server.document for server in servers_of_release(release)]


def archive(policy: Policy, release: Release) -> Path:
    """Write the archive of everything that the servers of a release need besides packages; return its path.

    It has files, and links to /dev/null that mask the distribution's units, as systemctl makes them. Root owns all of
    them; the certificate's key belongs to the servers' group. All have one fixed time, so unpacking the archive again
    changes nothing. Raises UserError naming the server whose build or template fails, ExperimentError for a mistake in
    sources.yml or a server.yml.
    """
    files: dict[str, tuple[bytes, int]] = certificate.files(CACHE)
    archives = read_archives(SOURCES)
    servers = servers_of_release(release)
    for server in servers:
        if server.source and server.name not in archives:
            continue  # an experiment that names this server skips it and says why
        files |= _files(server, policy, release)
        if server.source:
            files[server.binary] = (sources.binary(server.name, server.source, archives[server.name]), 0o755)
    path = CACHE / f"servers-{release.suite}.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode, entry.uname = len(content), mode, "root"
            entry.gname = certificate.GROUP if name == certificate.KEY else "root"
            tar.addfile(entry, io.BytesIO(content))
        for unit in sorted({unit for server in servers for unit in server.mask}):
            entry = tarfile.TarInfo(f"{UNITS}/{unit}".lstrip("/"))
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, "/dev/null", 0o777
            entry.uname = entry.gname = "root"
            tar.addfile(entry)
    partial.rename(path)
    return path


def program(name: str) -> bytes:
    """A server that vmtoll compiles itself, compiled. Raises UserError when that fails."""
    return _compile(next(server for server in definitions() if server.name == name))


def _files(server: ServerDefinition, policy: Policy, release: Release) -> dict[str, tuple[bytes, int]]:
    """Return {path on the SUT: (content, mode)} of one server."""
    name = server.name
    files = {f"{UNITS}/vmtoll-{name}.service": (_render(SERVER_BUILDS / "unit.j2", server, policy, release), 0o644)}
    for template in server.templates:
        content = _render(template_file(name, template, SERVER_BUILDS), server, policy, release)
        files[f"{FOLDER}/{name}/{Path(template).name}"] = (content, 0o644)
    if server.build:
        files[server.binary] = (_compile(server), 0o755)
    file_paths = [*files, *([server.binary] if server.source else [])]
    return files | {f"{FOLDER}/{name}.json": (_description(server, policy, file_paths), 0o644)}


def _render(template: Path, server: ServerDefinition, policy: Policy, release: Release) -> bytes:
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
            server=server.document,
            server_port=policy.port,
            server_metrics_port=policy.metrics_port,
            server_tls=policy.tls,
            server_workers=_workers(server, policy),
            server_root=ROOT,
            server_access_log=policy.access_log,
            server_suite=release.suite,
        )
    except Exception as error:
        raise UserError(f"{template}: {error}") from error
    return text.encode()


def _description(server: ServerDefinition, policy: Policy, files: list[str]) -> bytes:
    """Return the JSON that tells the runner about a server, and lists the files to remove with the server."""
    ports = server.ports or [policy.port]
    facts = {
        "name": server.name,
        "unit": f"vmtoll-{server.name}.service",
        "argv": shlex.split(server.exec_start),
        "user": server.user,
        "environment": dict.fromkeys(server.environment, str(_workers(server, policy))),
        "binary": server.binary,
        "configs": [
            *(f"{FOLDER}/{server.name}/{Path(template).name}" for template in server.templates),
            *([certificate.CERTIFICATE] if server.tls else []),
        ],
        "port": ports[0],
        "ports": ports,
        "workers": _workers(server, policy),
        "packages": server.packages,
        "files": files,
        **({"metrics": {"port": policy.metrics_port, "path": server.metrics}} if server.metrics else {}),
        **({"tls": _tls(server.tls, policy)} if server.tls else {}),
        **({"mail": server.mail.model_dump()} if server.mail else {}),
    }
    return (json.dumps(facts, indent=2) + "\n").encode()


def _tls(tls: Tls, policy: Policy) -> dict[str, Any]:
    ports = [policy.tls["port"], *([policy.tls["resumption_port"]] if tls.resumption else [])]
    return {"ports": ports, "kernel": tls.kernel}


def _workers(server: ServerDefinition, policy: Policy) -> int:
    """The policy's worker count, unless the server is a published configuration with its own."""
    return server.workers or policy.workers


def _compile(server: ServerDefinition) -> bytes:
    folder: Path = found(SERVER_BUILDS).find(server.name).parent
    if INSTALLED:  # what is installed may belong to another user, and stays as it is
        folder = _copied(folder)
    run(["make", "-s", "-C", folder, str(server.build)], log=CACHE / "logs" / f"build-{server.name}.log")
    return (folder / str(server.build)).read_bytes()


def _copied(folder: Path) -> Path:
    """A copy of a server's folder in the cache, under a key of its files."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    key = hashlib.sha256(b"".join(str(file).encode() + file.read_bytes() for file in files)).hexdigest()[:16]
    copy = CACHE / "server-builds" / f"{folder.name}-{key}"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with replacing(copy) as draft:
            shutil.copytree(folder, draft)
    return copy
