"""What a TLS handshake came to is compared like every fact; a machine without one is not shown to be equal."""

import json
import re
from pathlib import Path

import pytest

from tests.support.page_text import section
from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.equality import FactStatus, equality
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.report.html import render

NAME = "servers: nginx: tls: HTTP/2: cipher"
AES, CHACHA = "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"


@pytest.mark.parametrize(
    ("metal", "guest", "status", "values"),
    [
        (AES, AES, FactStatus.EQUAL, {"metal": AES}),
        (AES, CHACHA, FactStatus.UNDECLARED, {"metal": AES, "kvm-default": CHACHA}),
        (AES, None, FactStatus.ONE_SIDED, {"metal": AES, "kvm-default": None}),
        (None, AES, FactStatus.ONE_SIDED, {"metal": None, "kvm-default": AES}),
    ],
)
def test_ciphers_of_both_sides_are_compared(
    tmp_path: Path, metal: str | None, guest: str | None, status: FactStatus, values: dict[str, str | None]
) -> None:
    run = load_run(run_of(tmp_path, metal, guest))
    (fact,) = [fact for fact in equality(run) if fact.name == NAME]
    assert (fact.status, dict(fact.values)) == (status, values)
    assert analyse(run).undeclared_differences == (status is not FactStatus.EQUAL)


def run_of(folder: Path, metal: str | None, guest: str | None, declared: list[str] | None = None) -> Path:
    """A run with these ciphers in its facts."""
    run = make_run(folder, Truth())
    hosts, manifest = (json.loads((run / name).read_text()) for name in ("hosts.json", "run.json"))
    for machine, cipher in (("metal", metal), ("kvm-default", guest)):
        if cipher:
            hosts[machine]["servers"]["nginx"]["tls"] = {"HTTP/2": {"cipher": cipher}}
    manifest["differences"]["declared"] += declared or []
    (run / "hosts.json").write_text(json.dumps(hosts))
    (run / "run.json").write_text(json.dumps(manifest))
    return run


def test_a_declared_difference_may_be_one_sided(tmp_path: Path) -> None:
    facts = equality(load_run(run_of(tmp_path, AES, None, ["servers"])))
    assert [fact.status for fact in facts if fact.name == NAME] == [FactStatus.DECLARED]


def test_what_a_declared_part_does_not_explain_is_undeclared(tmp_path: Path) -> None:
    """Two releases: the binary and a missing server are explained, another configuration is not."""
    folder = run_of(tmp_path, None, None, ["servers: *: binary_sha256"])
    hosts = json.loads((folder / "hosts.json").read_text())
    hosts["metal"]["servers"]["h2o"] = {"binary_sha256": "b", "config_sha256": "c", "workers": 1}
    for key in ("binary_sha256", "config_sha256"):
        hosts["kvm-default"]["servers"]["nginx"][key] = "another"
    (folder / "hosts.json").write_text(json.dumps(hosts))
    status = {fact.name: fact.status for fact in equality(load_run(folder)) if fact.name.startswith("servers: ")}
    assert status["servers: nginx: binary_sha256"] is FactStatus.DECLARED
    assert status["servers: nginx: config_sha256"] is FactStatus.UNDECLARED
    assert {s for name, s in status.items() if "h2o" in name} == {FactStatus.DECLARED}


def test_a_difference_of_kin_shows_the_values_of_all(tmp_path: Path) -> None:
    """Metal's kernel and a guest's differ by design, and a container's from metal's does not."""
    folder = run_of(tmp_path, None, None, ["kernel"])
    hosts, manifest = (json.loads((folder / name).read_text()) for name in ("hosts.json", "run.json"))
    for machine, kernel in (("metal", "6.1"), ("kvm-default", "6.12")):
        hosts[machine]["kernel"] = kernel
    manifest["differences"]["undeclared"] = [{"fact": "kernel", "values": {"metal": "6.1"}}]
    (folder / "hosts.json").write_text(json.dumps(hosts))
    (folder / "run.json").write_text(json.dumps(manifest))
    (fact,) = [fact for fact in equality(load_run(folder)) if fact.name == "kernel"]
    assert (fact.status, fact.values) == (FactStatus.UNDECLARED, {"metal": "6.1", "kvm-default": "6.12"})


@pytest.mark.parametrize(
    ("change", "status", "title"),
    [
        ({"apply": "make"}, FactStatus.CHANGED, "What a change did: 1"),
        ({"apply": "make", "differs_in": ["binary"]}, FactStatus.DECLARED, "Declared differences: "),
    ],
)
@pytest.mark.usefixtures("without_charts")
def test_the_report_shows_what_a_change_did(
    tmp_path: Path, change: dict[str, object], status: FactStatus, title: str
) -> None:
    """By its command, which may have changed anything, or as it says; a fact that it changed is equal no more."""
    folder = make_run(tmp_path, Truth())
    manifest = json.loads((folder / "run.json").read_text())
    manifest["experiment"] |= {"environments": ["metal", "kvm-default", "built"], "changes": {"built": change}}
    name, values = "servers: nginx: binary_sha256", {"metal": "a", "built": "b"}
    manifest["differences"]["changed"] = [{"fact": name, "values": values}]
    other, of_other = "sysctls: net.core.somaxconn", {"metal": "4096", "built": "64"}
    manifest["differences"]["undeclared"] = [{"fact": other, "values": of_other}]
    (folder / "run.json").write_text(json.dumps(manifest))
    run = load_run(folder)
    facts = {fact.name: (fact.status, fact.values) for fact in equality(run)}
    assert (facts[name], facts[other]) == ((status, values), (FactStatus.UNDECLARED, of_other))
    assert analyse(run).undeclared_differences == 1
    assert title in section(render(run, analyse(run)), "equality")
    (folder / "hosts.json").write_text(json.dumps({"metal": json.loads((folder / "hosts.json").read_text())["metal"]}))
    assert {fact.name for fact in equality(load_run(folder))} == {name, other}, "of a single machine nothing else"


@pytest.mark.usefixtures("without_charts")
def test_the_report_shows_what_one_side_lacks(tmp_path: Path) -> None:
    run = load_run(run_of(tmp_path, AES, None))
    assert analyse(run).undeclared_differences == 1
    text = section(render(run, analyse(run)), "equality")
    assert '<p class="banner">' in text
    assert re.findall(r'<details class="(\w+)" open>', text) == ["one_sided"]
    assert NAME in text.partition('<details class="one_sided" open>')[2].partition("</details>")[0]


def test_settings_of_a_sandboxs_own_kernel_are_no_difference(tmp_path: Path) -> None:
    folder = run_of(tmp_path, None, None)
    hosts = json.loads((folder / "hosts.json").read_text())
    hosts["kvm-default"] |= {"sysctls": {}, "runtime": {"runtime": "runsc"}}
    hosts["metal"]["sysctls"] = {"net.core.somaxconn": "4096"}
    (folder / "hosts.json").write_text(json.dumps(hosts))
    run = load_run(folder)
    (fact,) = [fact for fact in equality(run) if fact.name == "sysctls" and fact.count is None]
    assert fact.status is FactStatus.DECLARED
    assert fact.values == {"kvm-default": "not visible: its own kernel"}
    assert analyse(run).undeclared_differences == 0
