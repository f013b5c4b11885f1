"""The certificate that a handshake is compared with."""

from types import SimpleNamespace
from typing import Any

import pytest

from vmtoll.model.change import Change
from vmtoll.model.code import Code
from vmtoll.model.facts import HostFacts, ServerFacts
from vmtoll.model.trial import Arm
from vmtoll.trial.server import TrialServer, certificate_of


def machine(**certificates: str) -> HostFacts:
    """Facts of a machine, with the certificate of each server whose handshakes it has made."""
    shown = {name: ServerFacts(tls={"HTTP/2": {"certificate_sha256": digest}}) for name, digest in certificates.items()}
    return HostFacts(servers={"nginx": ServerFacts(version="1.22"), **shown})


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ([machine(nginx="a"), machine(nginx="b")], "a"),
        ([machine(), machine(nginx="b")], "b"),
        ([HostFacts(role="client"), machine(caddy="c"), machine()], None),
    ],
)
def test_the_first_machine_that_has_shown_one_is_the_reference(machines: list[HostFacts], expected: str | None) -> None:
    assert certificate_of("nginx", machines) == expected


def unlike(
    declared: list[str], started_binary: str, sysctl: str = "1", config: str = "c", change: Change | None = None
) -> set[Code]:
    """The findings on a machine with another binary than the reference from the beginning on. `change`: puts the binary
    `built` and the value 2 of the kernel parameter `a.b` in place.
    """
    own = HostFacts(
        servers={"nginx": ServerFacts(binary_sha256="own", config_sha256="c", workers=1)}, content_digest="d"
    )
    reference = HostFacts(
        servers={"nginx": ServerFacts(binary_sha256="other", config_sha256="c", workers=1)}, sysctls={"a.b": "1"}
    )
    with_change = own.model_copy(deep=True, update={"sysctls": {"a.b": "2"}})
    with_change.servers["nginx"].binary_sha256 = "built"
    experiment = SimpleNamespace(declared_differences=declared, changes={"kvm-default": change} if change else {})
    session = SimpleNamespace(
        facts={"kvm": own}, reference=reference, content={"digest": "d"},
        facts_in=lambda _: {"kvm": with_change if change else own},
    )  # fmt: skip
    machines = SimpleNamespace(serving=[], server_on=lambda _, server: server)
    driver: Any = SimpleNamespace(
        experiment=experiment, session=session, scenario=SimpleNamespace(server="nginx"),
        machines=machines, spec=SimpleNamespace(arm=Arm("kvm-default")),
    )  # fmt: skip
    line: Any = SimpleNamespace(host=SimpleNamespace(name="kvm"))
    started: Any = {"binary_sha256": started_binary, "config_sha256": config, "workers": 1, "sysctls": {"a.b": sysctl}}
    return {finding.code for finding in TrialServer(driver)._unlike_reference(line, started)}


@pytest.mark.parametrize(
    ("keys", "binary", "sysctl", "config", "expected"),
    [
        ({"apply": "x"}, "any", "3", "other", set()),
        ({"apply": "x", "differs_in": ["binary"]}, "built", "1", "c", set()),
        ({"apply": "x", "differs_in": ["binary"]}, "built", "2", "c", {Code.SYSCTL}),
        ({"apply": "x", "differs_in": ["binary"]}, "built", "1", "other", {Code.FINGERPRINT}),
        ({"apply": "x", "differs_in": ["binary"]}, "replaced", "1", "c", {Code.FINGERPRINT}),
        ({"apply": "x", "differs_in": ["binary", "a.b"]}, "built", "2", "c", set()),
        ({"apply": "x", "differs_in": ["binary", "a.b"]}, "built", "3", "c", {Code.SYSCTL}),
        ({"apply": "x", "differs_in": []}, "built", "2", "c", {Code.FINGERPRINT, Code.SYSCTL}),
        ({"sysctls": {"a.b": 2}}, "other", "2", "c", set()),
        ({"sysctls": {"a.b": 2}}, "other", "1", "c", {Code.SYSCTL}),
        ({"sysctls": {"a.b": 2}}, "built", "2", "c", {Code.FINGERPRINT}),
    ],
)
def test_what_a_change_says_of_itself_is_expected_and_all_else_fires(
    keys: dict[str, Any], binary: str, sysctl: str, config: str, expected: set[Code]
) -> None:
    assert unlike([], binary, sysctl, config, Change(**keys)) == expected


def test_a_server_that_a_release_explains_is_compared_with_itself() -> None:
    assert unlike([], "own") == {Code.FINGERPRINT}
    assert unlike(["servers"], "own") == set()
    of_binary = ["servers: *: binary_sha256"]
    assert unlike(of_binary, "own") == set()
    assert unlike(of_binary, "own", config="other") == {Code.FINGERPRINT}, "nor is what the server is told"
    assert unlike(["servers"], "replaced") == {Code.FINGERPRINT}, "what changes in mid-run is not explained"
    assert unlike(["servers"], "own", sysctl="2") == {Code.SYSCTL}, "nor is a kernel parameter"
    assert unlike(["servers", "sysctls: a.b"], "own", sysctl="2") == set()
