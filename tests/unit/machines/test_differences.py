"""How a machine with a change differs from itself, by what the change says that it changes."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from vmtoll.machines.differences import changes_of, of_run
from vmtoll.machines.session import Session
from vmtoll.model.facts import ALWAYS_DIFFER, OF_A_CONTAINER, HostFacts, Kin, ServerFacts
from vmtoll.model.inventory import Host

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


KERNELS = {"metal": "6.1", "box": "6.1", "one": "6.12", "two": "6.12"}
ENVIRONMENTS = {"metal": "metal", "container": "box", "kvm-default": "one", "kvm-multiqueue": "two"}


@pytest.mark.parametrize(
    ("other", "undeclared"),
    [
        ({}, []),
        ({"box": "6.2"}, ["metal", "container"]),
        ({"two": "6.13"}, ["kvm-default", "kvm-multiqueue"]),
        ({"one": "6.1", "two": "6.1"}, []),
    ],
)
def test_a_container_has_the_kernel_of_metal_and_guests_of_one_image_each_others(
    other: dict[str, str], undeclared: list[str]
) -> None:
    facts = {
        name: HostFacts(kernel=kernel, container="podman" if name == "box" else "none")
        for name, kernel in (KERNELS | other).items()
    }
    machines = {environment: [Host(name, "metal", {})] for environment, name in ENVIRONMENTS.items()}
    experiment = SimpleNamespace(declared_differences=ALWAYS_DIFFER, machine_of=lambda environment: environment)
    kin = [Kin(["metal", "container"], OF_A_CONTAINER), Kin(["kvm-default", "kvm-multiqueue"], ["cmdline"])]
    session = SimpleNamespace(
        facts=facts, resolved=SimpleNamespace(experiment=experiment, kin=kin),
        inventory=SimpleNamespace(machines=machines),
    )  # fmt: skip
    found = of_run(cast("Session", session))
    assert "container" in found.declared
    assert ("kernel" in found.declared) is (len({facts[name].kernel for name in KERNELS}) > 1)
    assert [(difference.fact, list(difference.values)) for difference in found.undeclared] == (
        [("kernel", undeclared)] if undeclared else []
    )
