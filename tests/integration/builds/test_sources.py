"""Servers made of the user's source archive: built for real and measured, or skipped with a sentence."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.measured import plan, run
from tests.support.records import assert_sound, primary, records_of
from vmtoll.builds import servers, sources
from vmtoll.model.errors import ExperimentError, UserError
from vmtoll.model.event import Event, NotMeasured
from vmtoll.model.release import RELEASES
from vmtoll.spec.catalog import Registry
from vmtoll.spec.machines import load_inventory

Rewrite = Callable[..., Path]

# One connection after the other, closed after its answer.
PROGRAM = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (argc != 3 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 64)) return 1;
    for (;;) {
        char request[4096], url[1024], path[2048], body[65536];
        int client = accept(listener, 0, 0);
        ssize_t got = read(client, request, sizeof request - 1);
        request[got > 0 ? got : 0] = 0;
        if (sscanf(request, "GET %1023s", url) == 1) {
            snprintf(path, sizeof path, "%s%s", argv[2], url);
            int file = open(path, O_RDONLY);
            ssize_t size = file < 0 ? 0 : read(file, body, sizeof body);
            dprintf(client, "HTTP/1.1 %s\r\nContent-Length: %zd\r\nConnection: close\r\n\r\n",
                    file < 0 ? "404 Not Found" : "200 OK", size);
            if (write(client, body, size) != size) return 1;
            close(file);
        }
        shutdown(client, SHUT_WR);
        while (read(client, request, sizeof request) > 0) continue;
        close(client);
    }
}
"""
SERVER = {
    "description": "a small server of the test's own",
    "source": {
        "project": "tiny-httpd",
        "version": "0.1",
        "licence": "MIT",
        "make": "cc -o out/tiny-httpd main.c",
        "makes": "out/tiny-httpd",
    },
    "binary": "/usr/local/sbin/tiny-httpd",
    "templates": ["tiny.conf"],
    "exec_start": "/usr/local/sbin/tiny-httpd 8080 /srv/vmtoll/sites",
}
Build = Callable[..., bytes]


@pytest.fixture
def archive(tmp_path: Path) -> dict[str, str]:
    """A release archive as a user has it, and its entry of sources.yml."""
    path = tmp_path / "tiny-httpd-0.1.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (("main.c", PROGRAM), ("out/README", "the program goes here\n")):
            entry = tarfile.TarInfo(f"tiny-httpd-0.1/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Build the archive for the SUTs with these entries of sources.yml; one file of it, empty when it is not there."""
    (tmp_path / "builds/tiny").mkdir(parents=True)
    (tmp_path / "builds/tiny/tiny.conf.j2").write_text("port {{ server_port }}\n")
    (tmp_path / "builds/unit.j2").write_text("ExecStart={{ server.exec_start }}\n")
    monkeypatch.setattr(servers, "SERVER_BUILDS", tmp_path / "builds")
    monkeypatch.setattr(servers, "SOURCES", tmp_path)
    for module in (servers, sources):
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")

    def build(name: str, entries: dict[str, Any], **source: str) -> bytes:
        server = {**SERVER, "source": {**SERVER["source"], **source}}  # type: ignore[dict-item]
        (tmp_path / "builds/tiny/server.yml").write_text(yaml.safe_dump(server))
        (tmp_path / "sources.yml").write_text(yaml.safe_dump(entries))
        with tarfile.open(servers.archive(servers.Policy(), RELEASES[0])) as tar:
            found = tar.extractfile(name) if name in tar.getnames() else None
            return found.read() if found else b""

    return build


@pytest.fixture
def named(project: Registry, rewrite: Rewrite) -> Path:
    """An experiment with the server and lighttz, on one machine, without keep-alive."""
    folder = project.root / "server-builds/tiny"
    folder.mkdir()
    (folder / "server.yml").write_text(yaml.safe_dump(SERVER))
    workload = yaml.safe_load(project.workload_file("tiny").read_text())
    project.workload_file("tiny").write_text(yaml.safe_dump({**workload, "crosscheck": None, "keep_alive": False}))
    floor = {"environment": "metal", "servers": ["tiny"]}
    return rewrite(servers=["lighttz", "tiny"], environments=["metal"], blocks=1, noise_floor=floor)


def test_with_its_archive_it_is_built_and_measured(
    project: Registry, inventory: Path, named: Path, archive: dict[str, str], member: Build, tmp_path: Path
) -> None:
    (project.root / "sources.yml").write_text(yaml.safe_dump({"tiny": archive}))
    host = load_inventory(inventory, ["metal"]).suts["metal"]
    root = Path(host.root)
    program = root / "tiny-httpd"
    program.write_bytes(member("usr/local/sbin/tiny-httpd", {"tiny": archive}))
    program.chmod(0o755)
    spec = json.loads(member("etc/vmtoll/servers/tiny.json", {"tiny": archive}))
    command = [str(program), str(host.port), str(root / "srv/vmtoll/sites")]
    configs = [str(root / "policy.conf")]
    spec |= {"command": command, "binary": str(program), "configs": configs, "port": host.port, "unit": None}
    spec["ports"] = [host.port]
    (root / "etc/vmtoll/servers/tiny.json").write_text(json.dumps({k: v for k, v in spec.items() if v is not None}))

    folder = run(named, inventory, tmp_path / "results", registry=project)
    measured = [record for record in records_of(folder) if record.scenario.server == "tiny"]
    assert sorted(str(record.arm) for record in measured) == ["metal", "metal#2"]
    assert_sound(measured)
    assert [(primary(record).failed, record.counts.bodies_wrong) for record in measured] == [(0, 0), (0, 0)]
    document = json.loads((folder / "run.json").read_text())
    assert document["skipped"] == []
    assert document["versions"]["tiny"] == f"tiny-httpd 0.1, archive {archive['sha256']}"


def test_without_its_archive_it_is_skipped_with_a_sentence(
    project: Registry, inventory: Path, named: Path, tmp_path: Path
) -> None:
    events: list[Event] = []
    folder = run(named, inventory, tmp_path / "results", registry=project, listener=events.append)
    why = "source not available: tiny-httpd 0.1 is in no distribution; say in sources.yml where its archive is"
    assert NotMeasured("tiny", why) in events
    assert json.loads((folder / "run.json").read_text())["skipped"] == [
        {"server": "tiny", "environment": None, "workload": None, "why": why, "release": None}
    ]
    assert {record.scenario.server for record in records_of(folder)} == {"lighttz"}
    assert {trial.scenario.server for trial in plan(named, project).trials} == {"lighttz"}


def test_an_experiment_of_skipped_servers_only_is_refused(project: Registry, named: Path, rewrite: Rewrite) -> None:
    with pytest.raises(ExperimentError, match=r"servers: .*: tiny: source .*: tiny-httpd 0.1"):
        plan(rewrite(servers=["tiny"], noise_floor=None), project)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tiny: {path: /a}", r"sources.yml: sha256: is missing"),
        ("tiny: {path: /a, sha256: 12}", r"sources.yml: sha256: 12: "),
        ("tiny", r"sources.yml: must be a mapping"),
    ],
)
def test_a_mistake_in_the_users_file_is_named(project: Registry, named: Path, text: str, said: str) -> None:
    (project.root / "sources.yml").write_text(text)
    with pytest.raises(ExperimentError, match=said):
        plan(named, project)


def test_only_the_archive_that_the_user_named_is_built(archive: dict[str, str], member: Build) -> None:
    program = "usr/local/sbin/tiny-httpd"
    assert member(program, {}) == b"", "not available"
    assert member("etc/vmtoll/servers/tiny.json", {}) == b"", "nor provisioned"
    with pytest.raises(UserError, match=r"sources.yml: tiny.path: no file /nowhere"):
        member(program, {"tiny": {**archive, "path": "/nowhere"}})
    with pytest.raises(UserError, match=r"sources.yml: tiny.sha256: .*another archive"):
        member(program, {"tiny": {**archive, "sha256": "0" * 64}})
    first = member(program, {"tiny": archive})
    assert first.startswith(b"\x7fELF")
    with pytest.raises(UserError, match=r"`sh -ec exit 3` .*\(exit code 3\)"):
        member(program, {"tiny": archive}, make="exit 3")
    with pytest.raises(UserError, match=r"source.makes: .* no other"):
        member(program, {"tiny": archive}, makes="other")


def test_a_file_that_is_no_archive_is_refused(archive: dict[str, str], member: Build) -> None:
    Path(archive["path"]).write_bytes(b"<html>not found</html>")
    digest = hashlib.sha256(b"<html>not found</html>").hexdigest()
    with pytest.raises(UserError, match=r"sources.yml: tiny.path: `tar -xf .*\(exit code 2\)"):
        member("any", {"tiny": {**archive, "sha256": digest}})
