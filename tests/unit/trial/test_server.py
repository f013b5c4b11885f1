"""The certificate that a handshake is compared with."""

from types import SimpleNamespace
from typing import Any

import pytest

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


def unlike(declared: list[str], started_binary: str, sysctl: str = "1", config: str = "c") -> set[Code]:
    """The findings on a machine with another binary than the reference from the beginning on."""
    own = HostFacts(
        servers={"nginx": ServerFacts(binary_sha256="own", config_sha256="c", workers=1)}, content_digest="d"
    )
    reference = HostFacts(
        servers={"nginx": ServerFacts(binary_sha256="other", config_sha256="c", workers=1)}, sysctls={"a": "1"}
    )
    experiment = SimpleNamespace(declared_differences=declared, changes={})
    session = SimpleNamespace(facts={"kvm": own}, reference=reference, content={"digest": "d"})
    machines = SimpleNamespace(serving=[], server_on=lambda _, server: server)
    driver: Any = SimpleNamespace(
        experiment=experiment, session=session, scenario=SimpleNamespace(server="nginx"),
        machines=machines, spec=SimpleNamespace(arm=Arm("kvm-default")),
    )  # fmt: skip
    line: Any = SimpleNamespace(host=SimpleNamespace(name="kvm"))
    started: Any = {"binary_sha256": started_binary, "config_sha256": config, "workers": 1, "sysctls": {"a": sysctl}}
    return {finding.code for finding in TrialServer(driver)._unlike_reference(line, started)}


def test_a_server_that_a_release_explains_is_compared_with_itself() -> None:
    assert unlike([], "own") == {Code.FINGERPRINT}
    assert unlike(["servers"], "own") == set()
    of_binary = ["servers: *: binary_sha256"]
    assert unlike(of_binary, "own") == set()
    assert unlike(of_binary, "own", config="other") == {Code.FINGERPRINT}, "nor is what the server is told"
    assert unlike(["servers"], "replaced") == {Code.FINGERPRINT}, "what changes in mid-run is not explained"
    assert unlike(["servers"], "own", sysctl="2") == {Code.SYSCTL}, "nor is a kernel parameter"
