"""The archive that every SUT gets: complete, the same each time, and refused when a template asks for too much."""

import json
import tarfile
from pathlib import Path

import pytest

from vmtoll import servers
from vmtoll.shell import UserError


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    monkeypatch.setattr(servers, "CACHE", tmp_path)
    with tarfile.open(servers.archive(servers.Policy(port=8081, workers=3))) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def test_every_server_has_unit_configuration_and_description(members: dict[str, bytes]) -> None:
    assert {server["name"] for server in servers.catalog()} >= {
        *("lighttz", "nginx", "lighttpd", "lighttpd-workers", "apache-prefork", "apache-worker", "apache-event")
    }
    for server in (server for server in servers.catalog() if "source" not in server):
        name = server["name"]
        assert server["exec_start"].encode() in members[f"etc/systemd/system/vmtoll-{name}.service"]
        facts = json.loads(members[f"etc/vmtoll/servers/{name}.json"])
        assert (facts["port"], facts["workers"]) == (server.get("ports", [8081])[0], server.get("workers", 3))
        for config in facts["configs"]:
            assert b"{{" not in members[config.lstrip("/")]
        if "ports" not in server:
            assert any(b"8081" in members[config.lstrip("/")] for config in facts["configs"])


def test_nothing_is_in_the_archive_twice_and_twice_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "CACHE", tmp_path)
    first = servers.archive(servers.Policy()).read_bytes()
    assert servers.archive(servers.Policy()).read_bytes() == first


def test_a_template_that_asks_for_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "builds"
    (folder / "new").mkdir(parents=True)
    (folder / "unit.j2").write_text("{{ server.exec_start }}\n")
    (folder / "new" / "server.yml").write_text(
        "description: a server\nbinary: /bin/new\ntemplates: [new.conf]\nexec_start: /bin/new\n"
    )
    (folder / "new" / "new.conf.j2").write_text("{{ server_prot }}\n")
    monkeypatch.setattr(servers, "SERVER_BUILDS", folder)
    monkeypatch.setattr(servers, "CACHE", tmp_path)
    with pytest.raises(UserError, match=r"new\.conf\.j2: 'server_prot' is undefined"):
        servers.archive(servers.Policy())


def test_the_configuration_of_a_server_without_its_source_renders_too() -> None:
    for server in (server for server in servers.catalog() if "source" in server):
        assert {*server["source"]} == {"project", "version", "licence", "make", "makes"}
        texts = [content.decode() for content, _ in servers._files(server, servers.Policy(port=8081)).values()]
        assert any("8081" in text for text in texts) and not any("{{" in text for text in texts), server["name"]


def test_a_server_behind_another_has_a_port_of_its_own() -> None:
    (server,) = (server for server in servers.catalog() if server["name"] == "apache-proxy-lighttpd")
    files = servers._files(server, servers.Policy(port=8079))
    apache, proxy, lighttpd = (
        files[f"{servers.FOLDER}/apache-proxy-lighttpd/{name}"][0].decode()
        for name in ("apache2.conf", "proxy.conf", "lighttpd.conf")
    )
    assert "Listen 8079\n" in apache and "http://127.0.0.1:8078/" in proxy
    assert 'server.port = 8078\nserver.bind = "127.0.0.1"\n' in lighttpd
