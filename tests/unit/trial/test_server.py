"""The certificate that a handshake is compared with."""

import pytest

from vmtoll.model.facts import HostFacts, ServerFacts
from vmtoll.trial.server import certificate_of


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
