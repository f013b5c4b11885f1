"""How a machine with a change differs from itself, by what the change says that it changes."""

from collections.abc import Sequence

import pytest

from vmtoll.machines.differences import changes_of
from vmtoll.model.facts import HostFacts, ServerFacts

BEFORE = HostFacts(
    kernel="6.1", memory_kib=1_000_000, sysctls={"net.core.somaxconn": "4096"}, packages={"a": "1"},
    servers={"nginx": ServerFacts(binary_sha256="b", config_sha256="c", tls={"HTTP/2": {"cipher": "AES"}})},
)  # fmt: skip
AFTER = HostFacts(
    kernel="6.1", memory_kib=1_000_500, sysctls={"net.core.somaxconn": "64"}, packages={"a": "1", "new": "1"},
    servers={"nginx": ServerFacts(binary_sha256="built", config_sha256="c")},
)  # fmt: skip
BINARY, SYSCTL, PACKAGE = "servers: nginx: binary_sha256", "sysctls: net.core.somaxconn", "packages: new"


@pytest.mark.parametrize(
    ("explains", "undeclared"),
    [
        (None, []),
        ([], [SYSCTL, PACKAGE, BINARY]),
        (["servers: *: binary_sha256"], [SYSCTL, PACKAGE]),
        (["servers: *: binary_sha256", SYSCTL, "packages"], []),
    ],
)
def test_what_a_change_does_not_explain_is_undeclared(explains: Sequence[str] | None, undeclared: list[str]) -> None:
    found = changes_of({"metal": BEFORE, "new": AFTER}, explains)
    facts = {difference.fact: difference.values for difference in (*found.changed, *found.undeclared)}
    assert facts == {
        SYSCTL: {"metal": "4096", "new": "64"},
        PACKAGE: {"metal": None, "new": "1"},
        BINARY: {"metal": "b", "new": "built"},
    }
    assert sorted(difference.fact for difference in found.undeclared) == sorted(undeclared)
