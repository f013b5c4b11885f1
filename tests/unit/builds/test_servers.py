"""The archive that every SUT gets: complete, the same each time, and refused when a template asks for too much."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from vmtoll.builds import certificate, servers
from vmtoll.model.errors import ExperimentError, UserError
from vmtoll.model.release import Release, release_of_suite
from vmtoll.paths import PLAYBOOKS
from vmtoll.spec.server import FOLDER, ServerDefinition, read_server, read_servers

pytestmark = pytest.mark.slow

BOOKWORM, TRIXIE = release_of_suite("bookworm"), release_of_suite("trixie")


@pytest.fixture(autouse=True)
def _builds_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "CACHE", tmp_path)


@pytest.fixture
def members() -> dict[str, bytes]:
    with tarfile.open(servers.archive(servers.Policy(port=8081, workers=3), BOOKWORM)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def test_every_server_has_unit_configuration_and_description(members: dict[str, bytes]) -> None:
    assert (
        {server["name"] for server in servers.catalog(BOOKWORM)}
        == {server.name for server in read_servers()}
        >= {*("lighttz", "nginx", "lighttpd", "lighttpd-workers", "apache-prefork", "apache-worker", "apache-event")}
    )
    for server in (server for server in read_servers() if not server.source):
        name = server.name
        assert server.exec_start.encode() in members[f"etc/systemd/system/vmtoll-{name}.service"]
        facts = json.loads(members[f"etc/vmtoll/servers/{name}.json"])
        assert (facts["port"], facts["workers"]) == ((server.ports or [8081])[0], server.workers or 3)
        for config in facts["configs"]:
            assert b"{{" not in members[config.lstrip("/")]
        if not server.ports:
            assert any(b"8081" in members[config.lstrip("/")] for config in facts["configs"])


def test_archives_have_no_duplicates_and_are_reproducible() -> None:
    first = servers.archive(servers.Policy(), BOOKWORM).read_bytes()
    assert servers.archive(servers.Policy(), BOOKWORM).read_bytes() == first


def test_a_template_with_an_undefined_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "builds"
    (folder / "new").mkdir(parents=True)
    (folder / "unit.j2").write_text("{{ server.exec_start }}\n")
    (folder / "new" / "server.yml").write_text(
        "description: a server\nbinary: /bin/new\ntemplates: [new.conf]\nexec_start: /bin/new\n"
    )
    (folder / "new" / "new.conf.j2").write_text("{{ server_prot }}\n")
    monkeypatch.setattr(servers, "SERVER_BUILDS", folder)
    with pytest.raises(UserError, match=r"new\.conf\.j2: 'server_prot' is undefined"):
        servers.archive(servers.Policy(), BOOKWORM)


def test_the_configuration_of_a_server_without_its_source_renders_too() -> None:
    for server in (server for server in read_servers() if server.source):
        texts = [
            content.decode() for content, _ in servers._files(server, servers.Policy(port=8081), BOOKWORM).values()
        ]
        assert any("8081" in text for text in texts) and not any("{{" in text for text in texts), server.name


def test_a_release_gets_only_the_servers_that_it_ships() -> None:
    names = {release.suite: {server["name"] for server in servers.catalog(release)} for release in (BOOKWORM, TRIXIE)}
    assert names["bookworm"] - names["trixie"] == {"h2o"}
    assert names["trixie"] < names["bookworm"]
    archives = [servers.archive(servers.Policy(), release) for release in (BOOKWORM, TRIXIE)]
    assert archives[0] != archives[1]
    for release, path in zip((BOOKWORM, TRIXIE), archives, strict=True):
        with tarfile.open(path) as tar:
            described = {
                Path(name).stem for name in tar.getnames() if re.fullmatch(r"etc/vmtoll/servers/.*\.json", name)
            }
        sourceless = {server.name for server in read_servers() if server.source}
        assert described == names[release.suite] - sourceless


def test_a_configuration_is_the_one_that_the_releases_version_takes() -> None:
    def rendered(server: str, name: str, release: Release) -> str:
        files = servers._files(read_server(server), servers.Policy(), release)
        return files[f"{FOLDER}/{server}/{name}"][0].decode()

    limit = "server.max-keep-alive-requests = "
    assert f"{limit}1000000000\n" in rendered("lighttpd", "lighttpd.conf", BOOKWORM)
    assert f"{limit}65535\n" in rendered("lighttpd", "lighttpd.conf", TRIXIE)
    assert f"{limit}4\n" in rendered("lighttpd-tuned-2009", "lighttpd.conf", TRIXIE)
    mail = {release.suite: rendered("postfix-dovecot", "dovecot.conf", release) for release in (BOOKWORM, TRIXIE)}
    assert mail["trixie"].startswith("dovecot_config_version = 2.4.1\n")  # has to be the first setting
    assert "dovecot_config_version" not in mail["bookworm"]
    for text in mail.values():
        assert "/run/vmtoll-postfix-dovecot/accounts\n" in text and "{{" not in text


def test_a_server_behind_another_has_a_separate_port() -> None:
    files = servers._files(read_server("apache-proxy-lighttpd"), servers.Policy(port=8079), BOOKWORM)
    apache, proxy, lighttpd = (
        files[f"{FOLDER}/apache-proxy-lighttpd/{name}"][0].decode()
        for name in ("apache2.conf", "proxy.conf", "lighttpd.conf")
    )
    assert "Listen 8079\n" in apache and "http://127.0.0.1:8078/" in proxy
    assert 'server.port = 8078\nserver.bind = "127.0.0.1"\n' in lighttpd


def test_a_server_serves_its_metrics_on_the_loopback_for_the_agent() -> None:
    for name in ("lighttz", "lighttz-lua"):
        files = servers._files(read_server(name), servers.Policy(port=8081), BOOKWORM)
        assert b"status_listen = 127.0.0.1:8080\n" in files[f"{FOLDER}/{name}/lighttz.conf"][0]
        description = json.loads(files[f"{FOLDER}/{name}.json"][0])
        assert description["metrics"] == {"port": 8080, "path": "/-/metrics"}
        assert description["ports"] == [8081]
    nginx = servers._files(read_server("nginx"), servers.Policy(), BOOKWORM)
    assert "metrics" not in json.loads(nginx[f"{FOLDER}/nginx.json"][0])


@pytest.mark.parametrize(
    ("name", "file", "no_tickets", "tickets"),
    [
        ("nginx", "nginx.conf", "listen 8082 ssl http2", "listen 8083 ssl http2"),
        ("lighttpd", "lighttpd.conf", '"0.0.0.0:8082"', '"0.0.0.0:8083"'),
        ("apache-event", "apache2.conf", "<VirtualHost *:8082>", "<VirtualHost *:8083>"),
        ("caddy", "caddy.json", '[":8082"]', None),
        ("h2o", "h2o.conf", "port: 8082", None),
    ],
)
def test_a_server_speaks_tls_above_its_plain_port(name: str, file: str, no_tickets: str, tickets: str | None) -> None:
    """The port above it never resumes a session, the next one does where the server can have both."""
    files = servers._files(read_server(name), servers.Policy(port=8081), BOOKWORM)
    text = files[f"{FOLDER}/{name}/{file}"][0].decode()
    description = json.loads(files[f"{FOLDER}/{name}.json"][0])
    assert no_tickets in text and (tickets or "8082") in text
    assert ("8083" in text) is bool(tickets)
    assert description["tls"] == {"ports": [8082, 8083] if tickets else [8082], "kernel": False}
    assert description["configs"][-1] == "/etc/vmtoll/tls/certificate.pem", "it is part of what must be alike"
    assert description["ports"] == [8081]


def test_a_server_without_tls_stays_as_it_is() -> None:
    for name in ("lighttpd-tuned-2009", "apache-prefork", "apache-worker", "lighttpd-workers"):
        files = servers._files(read_server(name), servers.Policy(), BOOKWORM)
        written = {path: content for path, (content, _) in files.items() if not path.endswith(".json")}
        assert not [path for path, content in written.items() if b"8081" in content or b"ssl" in content.lower()]
        assert "tls" not in json.loads(files[f"{FOLDER}/{name}.json"][0])


def test_kernel_tls_is_on_where_it_is_declared_and_its_module_is_loaded() -> None:
    texts = {
        name: b"".join(content for content, _ in files.values()).decode()
        for name, files in (
            (name, servers._files(read_server(name), servers.Policy(), BOOKWORM)) for name in ("nginx", "nginx-ktls")
        )
    }
    assert "Options -KTLS;" in texts["nginx"] and "modprobe" not in texts["nginx"]
    assert "Options KTLS;" in texts["nginx-ktls"] and "ExecStartPre=-+/sbin/modprobe -q tls\n" in texts["nginx-ktls"]


def test_a_lab_has_one_certificate_which_is_made_once(tmp_path: Path) -> None:
    first, second = certificate.files(tmp_path), certificate.files(tmp_path)
    assert first == second != certificate.files(tmp_path / "another")
    assert {path: mode for path, (_, mode) in first.items()} == {certificate.CERTIFICATE: 0o644, certificate.KEY: 0o640}
    (tmp_path / "certificate.pem").write_bytes(first[certificate.CERTIFICATE][0])
    shown = subprocess.run(
        ["openssl", "x509", "-in", tmp_path / "certificate.pem", "-noout", "-text"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "ASN1 OID: prime256v1" in shown and "ecdsa-with-SHA256" in shown and "DNS:vmtoll" in shown


def test_the_group_of_the_servers_may_read_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(servers.archive(servers.Policy(), BOOKWORM)) as tar:
        key = tar.getmember(certificate.KEY.lstrip("/"))
    assert (key.mode, key.uname, key.gname) == (0o640, "root", "www-data")


INSTALL = """- hosts: localhost
  connection: local
  roles: [web_servers]
"""


def play(folder: Path, *servers_of_it: str) -> subprocess.CompletedProcess[str]:
    """Run the role under `folder` with an archive of these servers."""
    (folder / "root").mkdir(exist_ok=True)
    files = {f"etc/vmtoll/servers/{name}/main.conf": f"{name}\n" for name in servers_of_it}
    files |= {f"etc/systemd/system/vmtoll-{name}.service": "[Unit]\n" for name in servers_of_it}
    files |= {"usr/sbin/shared": "binary\n"}
    for name in servers_of_it:
        own = [
            f"/etc/systemd/system/vmtoll-{name}.service",
            f"/etc/vmtoll/servers/{name}/main.conf",
            "/usr/sbin/shared",
        ]
        files[f"etc/vmtoll/servers/{name}.json"] = json.dumps({"name": name, "files": own})
    with tarfile.open(folder / "servers.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
        mask = tarfile.TarInfo("etc/systemd/system/nginx.service")
        mask.type, mask.linkname, mask.mode = tarfile.SYMTYPE, "/dev/null", 0o777
        tar.addfile(mask)
    (folder / "play.yml").write_text(INSTALL)
    variables = {
        "web_servers_root": str(folder / "root"),
        "web_servers_archive": str(folder / "servers.tar"),
        "web_servers_list": [{"name": name, "mask": ["nginx.service"]} for name in servers_of_it],
    }
    ansible = Path(sys.executable).parent / "ansible-playbook"
    argv: list[str | Path] = [ansible, "-i", "localhost,", folder / "play.yml", "-e", json.dumps(variables)]
    config = {**os.environ, "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(argv, env=config, capture_output=True, text=True, check=False)


def installed(folder: Path, *servers_of_it: str) -> dict[str, str]:
    """What the role then has there: path → content, or what a link points to; and how many tasks changed anything."""
    done = play(folder, *servers_of_it)
    assert done.returncode == 0, done.stdout[-2000:]
    (changed,) = re.findall(r"changed=(\d+)", done.stdout)
    paths = [path for path in (folder / "root").rglob("*") if path.is_symlink() or path.is_file()]
    return {"changed": changed} | {
        str(path.relative_to(folder / "root")): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in paths
    }


def test_a_server_that_left_the_catalogue_is_removed_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    first = installed(tmp_path, "nginx", "gone")
    assert first["etc/systemd/system/nginx.service"] == "/dev/null"
    assert "etc/vmtoll/servers/gone/main.conf" in first
    second = installed(tmp_path, "nginx")
    assert not [path for path in second if "gone" in path]
    assert not (tmp_path / "root/etc/vmtoll/servers/gone").exists()
    assert second["usr/sbin/shared"] == "binary\n"
    assert installed(tmp_path, "nginx") == second | {"changed": "0"}


def test_a_unit_that_someone_wrote_is_not_replaced_by_a_mask(tmp_path: Path) -> None:
    unit = tmp_path / "root/etc/systemd/system/nginx.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    done = play(tmp_path, "nginx")
    assert done.returncode != 0 and "replaced by a mask" in done.stdout
    assert unit.read_text() == "[Unit]\n" and not unit.is_symlink()


def test_an_empty_catalogue_removes_nothing(tmp_path: Path) -> None:
    description = tmp_path / "root/etc/vmtoll/servers/nginx.json"
    description.parent.mkdir(parents=True)
    description.write_text(json.dumps({"name": "nginx", "files": [f"/{description.relative_to(tmp_path / 'root')}"]}))
    done = play(tmp_path)
    assert done.returncode != 0 and "run `vmtoll provision`" in done.stdout
    assert description.exists()


def test_masks_come_with_the_archive() -> None:
    with tarfile.open(servers.archive(servers.Policy(), BOOKWORM)) as tar:
        links = {member.name: member.linkname for member in tar if member.issym()}
    units = {unit for server in servers.catalog(BOOKWORM) for unit in server.get("mask", [])}
    assert links == {f"etc/systemd/system/{unit}": "/dev/null" for unit in units}
    assert "etc/systemd/system/nginx.service" in links


BASE = """
description: a server
packages: [base]
build: build/base
binary: /usr/sbin/base
templates: [base.conf]
exec_start: /usr/sbin/base -c {folder}/base.conf
settings: {sizes: {start: 1, most: 4}, more: "log {name}"}
"""


def tree(folder: Path, **documents: str) -> Path:
    """Servers with these texts as server.yml."""
    for name, text in {"base": BASE, **documents}.items():
        (folder / name).mkdir()
        (folder / name / "server.yml").write_text(text)
    return folder


def test_a_server_can_extend_another(tmp_path: Path) -> None:
    folder = tree(
        tmp_path,
        child="description: a child\nof: base\nsettings: {sizes: {most: 8}, own: true}\n",
        grandchild="description: x\nof: child\npackages: [other]\ntemplates: [../base/base.conf, own.conf]\n",
    )
    child, grandchild = (read_server(name, folder) for name in ("child", "grandchild"))
    assert child.document == {
        "name": "child",
        "description": "a child",
        "packages": ["base"],
        "binary": "/usr/sbin/base",
        "templates": ["../base/base.conf"],
        "exec_start": "/usr/sbin/base -c /etc/vmtoll/servers/child/base.conf",
        "settings": {"sizes": {"start": 1, "most": 8}, "more": "log child", "own": True},
    }, "a build is the business of its own folder"
    assert read_server("base", folder).build == "build/base"
    assert (grandchild.packages, grandchild.templates) == (["other"], ["../base/base.conf", "own.conf"])
    assert grandchild.settings == child.settings | {"more": "log grandchild"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("odd", "description: x\nof: bsae\n", r"odd/server.yml: of: unknown server 'bsae' \(did you mean 'base'\?\)"),
        ("odd", "description: x\nof: odd\n", r"odd/server.yml: of: odd → odd is a cycle"),
        ("odd", "description: x\nof: base\nworker: 3\n", r"odd/server.yml: worker: unknown key .* 'workers'"),
        ("odd", "description: x\nof: base\nworkers: 0\n", r"odd/server.yml: workers: 0: must be greater"),
        ("odd", "description: x\nbinary: /x\nexec_start: /x\n", r"odd/server.yml: templates: is missing"),
        ("odd", "description: x\nof: base\nsource: {project: x}\n", r"odd/server.yml: source.version: is missing"),
    ],
)
def test_mistakes_in_a_server_are_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        read_server(name, tree(tmp_path, **{name: text}))


def test_a_mistake_in_what_is_taken_over_names_its_own_file(tmp_path: Path) -> None:
    folder = tree(tmp_path, bad="description: x\nof: base\nport: 1\n", child="description: y\nof: bad\n")
    with pytest.raises(ExperimentError, match=r"/bad/server.yml: port: unknown .*'port'"):
        read_server("child", folder)


def test_every_key_of_a_server_is_known() -> None:
    assert all(isinstance(server, ServerDefinition) for server in read_servers())
    assert {server.name for server in read_servers() if server.serves == "mail"} == {"postfix-dovecot"}


def test_an_installation_builds_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed may belong to another user; a changed source is built again."""
    shipped, cache = tmp_path / "shipped", tmp_path / "cache"
    (shipped / "tiny").mkdir(parents=True)
    (shipped / "tiny/Makefile").write_text("build/tiny: source\n\tmkdir -p build; cat source >$@\n")
    text = "description: tiny\nbinary: /bin/tiny\ntemplates: []\nexec_start: /bin/tiny\nbuild: build/tiny\n"
    (shipped / "tiny/server.yml").write_text(text)
    for name, value in (("INSTALLED", True), ("CACHE", cache), ("SERVER_BUILDS", shipped)):
        monkeypatch.setattr(servers, name, value)
    for source in ("one", "two"):
        (shipped / "tiny/source").write_text(source)
        assert servers._compile(read_server("tiny", shipped)) == source.encode()
    assert not (shipped / "tiny/build").exists()
    assert len(list((cache / "server-builds").iterdir())) == 2
