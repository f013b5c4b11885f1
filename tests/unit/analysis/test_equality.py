"""What a TLS handshake came to is compared like every fact, between the machines where there was one."""

import json
from pathlib import Path

import pytest

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.equality import Status, equality
from vmtoll.analysis.run import load_run

NAME = "servers: nginx: tls: HTTP/2: cipher"
AES, CHACHA = "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"


@pytest.mark.parametrize(
    ("metal", "guest", "status", "values"),
    [
        (AES, AES, Status.EQUAL, {"metal": AES}),
        (AES, CHACHA, Status.UNDECLARED, {"metal": AES, "kvm-default": CHACHA}),
        (AES, None, Status.EQUAL, {"metal": AES}),
        (None, AES, Status.EQUAL, {"kvm-default": AES}),
    ],
)
def test_ciphers_are_compared_where_they_are_known(
    tmp_path: Path, metal: str | None, guest: str | None, status: Status, values: dict[str, str]
) -> None:
    run = make_run(tmp_path, Truth())
    hosts = json.loads((run / "hosts.json").read_text())
    for machine, cipher in (("metal", metal), ("kvm-default", guest)):
        if cipher:
            hosts[machine]["servers"]["nginx"]["tls"] = {"HTTP/2": {"cipher": cipher}}
    (run / "hosts.json").write_text(json.dumps(hosts))
    (fact,) = [fact for fact in equality(load_run(run)) if fact.name == NAME]
    assert (fact.status, dict(fact.values)) == (status, values)
