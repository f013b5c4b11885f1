"""A KVM host fetches the guests' image by URL, from a real nginx: in part, again, whole, and never a wrong one."""

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from vmtoll.builds.image import SUMS, export, files_for
from vmtoll.model.errors import UserError
from vmtoll.paths import PLAYBOOKS
from vmtoll.shell import Changes, play

FETCH = PLAYBOOKS / "roles" / "kvm_guest" / "files" / "fetch.sh"
SIZE = 6_000_000
NGINX = """
daemon off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    log_format short '$request_uri $status $body_bytes_sent';
    access_log {folder}/access.log short;
    client_body_temp_path {folder}/t; proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t;
    uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
    proxy_cache_path {folder}/rack keys_zone=rack:1m;
    server {{
        listen 127.0.0.1:{port};
        location /image/ {{ alias {folder}/image/; }}
        location /slow/ {{ alias {folder}/image/; limit_rate 2m; }}
        location /rack/ {{
            proxy_pass http://127.0.0.1:{port}/image/;
            proxy_cache rack;
            proxy_cache_valid 200 1h;
        }}
        location /whole/ {{ alias {folder}/image/; max_ranges 0; }}
    }}
}}
"""
ROLE = """- hosts: localhost
  connection: local
  roles: [kvm_guest]
"""


@dataclass(frozen=True)
class Site:
    """An exported image that nginx serves; `digest`: of its SHA256SUMS."""

    folder: Path
    base: str
    digest: str

    def url(self, location: str = "image") -> str:
        return f"{self.base}/{location}"

    def fetch(self, folder: Path, *files: str, location: str = "image") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.words(folder, *files, location=location), capture_output=True, text=True, check=False
        )  # fmt: skip

    def words(self, folder: Path, *files: str, location: str = "image") -> list[str]:
        return ["sh", str(FETCH), self.url(location), self.digest, str(folder), *(files or files_for([]))]

    def sent(self, name: str, location: str = "") -> list[tuple[int, int]]:
        """Status and octets of each request for a file."""
        lines = [line.split() for line in (self.folder / "access.log").read_text().splitlines()]
        return [(int(status), int(octets)) for path, status, octets in lines if path.endswith(f"{location}/{name}")]


@contextmanager
def nginx(folder: Path, port: int) -> Iterator[None]:
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    process = subprocess.Popen(["nginx", "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")])
    try:
        until(lambda: (folder / "nginx.pid").exists() and (folder / "nginx.pid").read_text().strip())
        yield
    finally:
        process.terminate()
        process.wait(10)


def until(condition: Callable[[], object], limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    built, folder = tmp_path / "built", tmp_path / "served"
    (built / "root").mkdir(parents=True)
    (built / "guest.qcow2").write_bytes(os.urandom(SIZE))
    for name in ("vmlinuz", "initrd.img", "vmlinuz-linux-image-cloud-amd64", "notes.txt"):
        (built / name).write_bytes(name.encode() * 1000)
    folder.mkdir()
    digest = export(built, folder / "image")
    assert not (folder / "image/notes.txt").exists(), "what a host needs"
    port = free_ports()
    with nginx(folder, port):
        yield Site(folder, f"http://127.0.0.1:{port}", digest)


def test_a_fetched_image_is_whole_and_not_fetched_again(site: Site, tmp_path: Path) -> None:
    done = site.fetch(tmp_path / "host")
    assert (done.returncode, done.stdout.split()) == (0, [SUMS, "guest.qcow2", "initrd.img", "vmlinuz"]), done.stderr
    subprocess.run(["sha256sum", "--check", "--ignore-missing", SUMS], cwd=tmp_path / "host", check=True)
    again = site.fetch(tmp_path / "host")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert site.sent("guest.qcow2") == [(200, SIZE)]


@pytest.mark.parametrize(("location", "status"), [("image", 206), ("whole", 200)])
def test_a_killed_fetch_goes_on_where_it_ended(site: Site, tmp_path: Path, location: str, status: int) -> None:
    """Or from the beginning, where the server has no ranges."""
    folder = tmp_path / "host"
    part = folder / ".guest.qcow2.part"
    process = subprocess.Popen(site.words(folder, location="slow"), start_new_session=True)
    until(lambda: part.exists() and part.stat().st_size > SIZE // 4)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    had = part.stat().st_size
    assert had < SIZE
    assert not (folder / "guest.qcow2").exists()
    assert site.fetch(folder, location=location).returncode == 0
    assert site.sent("guest.qcow2")[-1] == (status, SIZE - had if status == 206 else SIZE)
    assert not part.exists()
    assert digest_of(folder / "guest.qcow2") == digest_of(site.folder / "image/guest.qcow2")


@pytest.mark.parametrize("left", [b"of another image", os.urandom(SIZE), os.urandom(SIZE + 1)])
def test_what_is_left_of_another_image_is_fetched_again(site: Site, tmp_path: Path, left: bytes) -> None:
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / ".guest.qcow2.part").write_bytes(left)
    assert site.fetch(folder).returncode == 0
    assert digest_of(folder / "guest.qcow2") == digest_of(site.folder / "image/guest.qcow2")


def test_a_part_that_is_whole_is_not_fetched(site: Site, tmp_path: Path) -> None:
    """Killed between the last octet and the name."""
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / ".guest.qcow2.part").write_bytes((site.folder / "image/guest.qcow2").read_bytes())
    assert site.fetch(folder).returncode == 0
    assert site.sent("guest.qcow2") == []


def test_a_cache_of_a_rack_fetches_it_once_for_all_its_hosts(site: Site, tmp_path: Path) -> None:
    for host in ("one", "two"):
        assert site.fetch(tmp_path / host, location="rack").returncode == 0
    part = tmp_path / "three" / ".guest.qcow2.part"
    part.parent.mkdir()
    part.write_bytes((site.folder / "image/guest.qcow2").read_bytes()[: SIZE // 2])
    assert site.fetch(part.parent, location="rack").returncode == 0
    assert site.sent("guest.qcow2", "/image") == [(200, SIZE)]
    assert site.sent("guest.qcow2", "/rack") == [(200, SIZE), (200, SIZE), (206, SIZE // 2)]
    assert {digest_of(tmp_path / host / "guest.qcow2") for host in ("one", "two", "three")} == {
        digest_of(site.folder / "image/guest.qcow2")
    }


def test_a_wrong_image_is_one_sentence_and_no_file(site: Site, tmp_path: Path) -> None:
    folder, disk = tmp_path / "host", site.folder / "image/guest.qcow2"
    is_right = digest_of(disk)
    disk.write_bytes(b"changed")
    done = site.fetch(folder)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{site.url()}/guest.qcow2: its SHA-256 is {digest_of(disk)}, not {is_right}; ")
    assert done.stderr.count("\n") == 1
    assert not (folder / "guest.qcow2").exists()
    done = site.fetch(folder, "vmlinuz-linux-image-amd64")
    assert f"{site.url()}/SHA256SUMS: it has no vmlinuz-linux-image-amd64" in done.stderr
    disk.unlink()
    done = site.fetch(folder)
    assert f"{site.url()}/guest.qcow2: curl: (22)" in done.stderr
    assert "404" in done.stderr
    (site.folder / "image" / SUMS).write_text("another image's\n")
    done = site.fetch(tmp_path / "other")
    assert f"{site.url()}/SHA256SUMS: its SHA-256 is" in done.stderr
    assert [path.name for path in (tmp_path / "other").iterdir()] == [".lock"]


def test_the_role_fetches_it_once(site: Site, tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(ROLE)
    variables = {
        "kvm_guest_list": [], "kvm_guest_packages": [], "kvm_guest_folder": str(tmp_path / "host"),
        "kvm_guest_image_url": site.url(), "kvm_guest_image_sha256": site.digest,
        "kvm_guest_image_files": files_for(["linux-image-cloud-amd64"])[:1],
    }  # fmt: skip
    tasks: list[list[object]] = []
    for _ in range(2):
        changes: Changes = {}
        play(str(tmp_path / "play.yml"), "-e", json.dumps(variables), quiet=True, changes=changes)
        tasks.append([change["task"] for change in changes["localhost"]])
    assert tasks == [["kvm_guest : Make the image's folder", "kvm_guest : Fetch the image"], []]
    fetched = tmp_path / "host" / site.digest[:16] / "guest.qcow2"
    assert digest_of(fetched) == digest_of(site.folder / "image/guest.qcow2")
    wrong = json.dumps(variables | {"kvm_guest_image_sha256": "0" * 64})
    with pytest.raises(UserError, match=r"Fetch the image: http://\S+/SHA256SUMS: .*SHA-256 "):
        play(str(tmp_path / "play.yml"), "-e", wrong, quiet=True)


def test_the_role_copies_an_image_of_another_release_beside_it(site: Site, tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(ROLE)
    for name in ("newest", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "guest.qcow2").write_text(name)
    variables = {
        "kvm_guest_list": [], "kvm_guest_packages": [], "kvm_guest_folder": str(tmp_path / "host"),
        "kvm_guest_image_source": str(tmp_path / "newest"), "kvm_guest_image_files": ["guest.qcow2"],
        "kvm_guest_more_images": [{"source": str(tmp_path / "other"), "files": ["guest.qcow2"]}],
    }  # fmt: skip
    for _ in range(2):
        changes: Changes = {}
        play(str(tmp_path / "play.yml"), "-e", json.dumps(variables), quiet=True, changes=changes)
    assert changes == {"localhost": []} or not any(changes.values()), "nothing is copied twice"
    for name in ("newest", "other"):
        assert (tmp_path / "host" / name / "guest.qcow2").read_text() == name


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
