"""The servers that answer one page by a script do so: a header that only the script sets says which interpreter ran."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.faults import changed
from tests.lab.the_lab import Ssh
from vmtoll.machines.connection import AgentLine
from vmtoll.spec.machines import load_inventory

pytestmark = pytest.mark.lab

# Server → the page and what its script says; for PHP that is the way by which the server runs it.
SCRIPTED = {
    "apache-mod-lua": ("hello.html", "lua"),
    "lighttpd-magnet": ("hello.html", "lua"),
    "lighttz-lua": ("hello.html", "lua"),
    "lighttz-lua-reload": ("hello.html", "lua"),
    "nginx-lua": ("hello.html", "lua"),
    "apache-mod-php": ("php.html", "php apache2handler"),
    "lighttpd-php-fastcgi": ("php.html", "php cgi-fcgi"),
    "nginx-php-fpm": ("php.html", "php fpm-fcgi"),
}
CASES = [("metal", server) for server in SCRIPTED] + [("kvm-default", "lighttpd-php-fastcgi")]
ASK = """
import json, urllib.request
with urllib.request.urlopen({url!r}, timeout=30) as answer:
    body = answer.read()
    print(json.dumps([answer.headers["X-Answered-By"], answer.headers["Content-Type"], body.decode()]))
"""


@contextmanager
def running(lab: Path, ssh: Ssh, environment: str, server: str) -> Iterator[Callable[[str], list[str | None]]]:
    """Start a server; what asks it for a page, from the client: [X-Answered-By, Content-Type, body]."""
    sut = load_inventory(lab / "inventory.yml", [environment]).suts[environment]

    def get(page: str) -> list[str | None]:
        script = ASK.format(url=f"http://{sut.address}:{sut.port}/pages/{page}")
        answer: list[str | None] = json.loads(ssh("client", f"python3 -c {shlex.quote(script)}"))
        return answer

    line = AgentLine(sut)
    line.open()
    try:
        line.call("server_start", 90.0, name=server)
        yield get
    finally:
        line.close()  # the agent stops what it started


@pytest.mark.parametrize(("environment", "server"), CASES)
def test_the_page_comes_from_the_script(lab: Path, ssh: Ssh, environment: str, server: str) -> None:
    page, script = SCRIPTED[server]
    file = ssh("metal", f"cat /srv/vmtoll/sites/pages/{page}; echo .").removesuffix(".")
    with running(lab, ssh, environment, server) as get:
        answered_by, kind, body = get(page)
        assert (answered_by, body) == (script, file)
        assert kind is not None and kind.startswith("text/html")
        assert get("page-357.html")[0] is None, "a file is still a file"


@pytest.mark.parametrize(("server", "reloads"), [("lighttz-lua", False), ("lighttz-lua-reload", True)])
def test_which_servers_reload_the_script_on_each_request(lab: Path, ssh: Ssh, server: str, reloads: bool) -> None:
    script = f"/etc/vmtoll/servers/{server}/hello.lua"
    change = f"cp -p {script} /root/kept; sed -i 's/Hello, world/Hello, reader/' {script}"
    with running(lab, ssh, "metal", server) as get:
        assert get("hello.html")[2] == "<html><body>Hello, world!</body></html>"
        with changed(ssh, "metal", change, f"mv /root/kept {script}"):
            whom = "reader" if reloads else "world"
            assert get("hello.html")[::2] == ["lua", f"<html><body>Hello, {whom}!</body></html>"]


def test_no_php_service_of_the_distribution_runs(ssh: Ssh) -> None:
    """Neither its own php-fpm, whose unit's name has PHP's version in it, nor the timer that tidies sessions."""
    units = ssh("metal", "systemctl list-unit-files --plain --no-legend 'php*'").splitlines()
    assert len(units) >= 3
    assert {line.split()[1] for line in units} == {"masked"}, units
