"""What is wrong with an inventory is found before anything connects."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.snapshots import assert_snapshot
from tests.support.this_machine import data
from vmtoll.model.errors import InventoryError
from vmtoll.spec.inventory_faults import InventoryData, Purpose, check_inventory, faults

SNAPSHOT = Path(__file__).with_name("snapshots") / "inventory-faults.txt"
LIST = "; allowed: "  # the profiles that vmtoll has
GOOD: dict[str, dict[str, Any]] = {
    "load": {"group": "clients"},
    "big": {"group": "metal_hosts", "vmtoll_environment": "metal"},
    "small": {
        "group": "kvm_guests",
        "vmtoll_environment": "kvm-default",
        "vmtoll_kvm_host": "host",
        "vmtoll_domain": "small",
    },
    "host": {"group": "kvm_hosts"},
}


def changed(host: str, **variables: Any) -> dict[str, Any]:
    merged = {**GOOD.get(host, {}), **variables}
    return {**GOOD, host: {key: value for key, value in merged.items() if value is not None}}


def found(hosts: dict[str, Any], purpose: Purpose = "load") -> list[tuple[str, str]]:
    """(machine, what is wrong) of each error."""
    machines = InventoryData(data(**hosts), Path("lab.yml"))
    return [(fault.machine, fault.found) for fault in faults(machines, purpose=purpose) if (fault.level == "fail")]


def test_a_good_inventory_has_no_faults() -> None:
    assert list(faults(InventoryData(data(**GOOD), Path("lab.yml")))) == []


def test_a_guest_has_a_host_and_a_domain_or_neither() -> None:
    """Without both it is a tenant's."""
    assert found(changed("small", vmtoll_kvm_host=None, vmtoll_domain=None)) == []


def test_a_guest_at_the_address_of_metal_is_an_error() -> None:
    """Also one whose host is not named."""
    own = {"vmtoll_kvm_host": None, "vmtoll_domain": None}
    assert found(changed("small", **own, ansible_host="big"))
    assert found(changed("small", **own, ansible_host="big", ansible_port=2222)) == []


def test_a_wrong_value_hides_no_fault_of_a_machine_whose_name_contains_the_other() -> None:
    """The guest `small-2` lacks its domain, and `small` has a wrong one."""
    both = changed("small", vmtoll_domain=["a"]) | {"small-2": {**GOOD["small"], "vmtoll_domain": None}}
    unset = "vmtoll_domain is not set"
    assert [machine for machine, said in found(both) if said == unset] == ["small-2"]


def test_what_is_wrong_for_all_is_one_line() -> None:
    wrong = {host: variables | {"vmtoll_http_port": "web"} for host, variables in GOOD.items()}
    (said,) = found(wrong)
    assert sorted(said[0].split(", ")) == sorted(GOOD)


@pytest.mark.parametrize("name", ["ansible_password", "ansible_ssh_pass", "ansible_become_password"])
def test_a_password_is_an_error(name: str) -> None:
    """Ansible would log in by it, and vmtoll would not."""
    (said,) = found(changed("big", **{name: "secret"}))
    assert said[0] == "big"
    assert said[1].startswith(f"{name} is set")
    assert "secret" not in said[1]


def test_load_goes_by_ipv4_and_ssh_by_either() -> None:
    assert found(changed("load", ansible_host="2001:db8::1")) == []
    assert found(changed("big", ansible_host="2001:db8::1", vmtoll_address="192.0.2.1")) == []
    assert found(changed("big", ansible_host="2001:db8::1"))
    assert found(changed("big", ansible_host="2001:db8::1"), purpose="machines") == []


def test_arguments_of_ssh_are_words() -> None:
    ((machine, said),) = found(changed("big", ansible_ssh_common_args="-o 'x"))
    assert machine == "big"
    assert "ansible_ssh_common_args" in said
    assert "no closing quotation" in said


@pytest.mark.parametrize(
    ("misspelt", "group"), [("sut", "suts"), ("metal_host", "metal_hosts"), ("kvm-guests", "kvm_guests")]
)
def test_a_group_that_is_nearly_ours_is_an_error(misspelt: str, group: str) -> None:
    hosts = {name: given | {"group": misspelt} if given["group"] == group else given for name, given in GOOD.items()}
    if group == "suts":
        hosts |= {"more": {"group": misspelt}}
    machine, said = found(hosts)[0]
    assert (machine, re.findall("`(.*?)`", said)) == ("", [misspelt, group])


@pytest.mark.parametrize("misspelt", ["client", "CLIENTS", "Clients", "clientss"])
def test_a_group_beside_ours_that_loses_machines_is_an_error(misspelt: str) -> None:
    ((machine, said),) = found({**GOOD, "load2": {"group": misspelt}})
    assert (machine, re.findall("`(.*?)`", said)) == ("", [misspelt, "clients"])
    assert found({**GOOD, "load2": {"group": misspelt, "vmtoll_back_s": 1}})[0][1].startswith("unknown group")
    twin = data(**GOOD) | {misspelt: {"hosts": ["load"]}}
    assert list(faults(InventoryData(twin, Path("lab.yml")))) == [], "no machine is lost"


def test_short_names_of_others_are_left_in_peace_unless_they_hold_what_is_ours() -> None:
    """`dell` and `sets` are within two letters of cells and suts."""
    assert found({**GOOD, "a": {"group": "dell"}, "b": {"group": "sets"}}) == []
    parent = data(**GOOD) | {"sutz": {"children": ["metal_hosts", "kvm_guests"]}}
    (fault,) = faults(InventoryData(parent, Path("lab.yml")))
    assert re.findall("`(.*?)`", fault.found) == ["sutz", "suts"]


SECOND = GOOD["small"] | {"vmtoll_environment": "kvm-tuned", "ansible_host": "small2"}


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (changed("small", vmtoll_kvm_host="small"), "vmtoll_kvm_host is the guest itself"),
        (changed("small", ansible_host="host"), "its address host is that of its KVM host host"),
        ({**GOOD, "two": SECOND}, "small and two have the same vmtoll_domain"),
        (changed("big", vmtoll_address="10.0.0.9") | {"small": GOOD["small"] | {"vmtoll_address": "10.0.0.9"}},
         "big and small have the same vmtoll_address"),
        (changed("big", vmtoll_environment="metl"), "unknown vmtoll_environment 'metl' (did you mean 'metal'?)"),
        (changed("small", vmtoll_profile="kvm-defualt", vmtoll_cpus="1"), "unknown vmtoll_profile 'kvm-defualt'"),
        (changed("small", vmtoll_profile="kvm-tuned", vmtoll_cpus="1"), "and vmtoll_profile 'kvm-tuned'"),
        (changed("small", vmtoll_profile="kvm-default"), "vmtoll_cpus is not set"),
        (changed("small", vmtoll_cpus="all"), "vmtoll_cpus is 'all'"),
        (changed("small", vmtoll_suite="sid"), "vmtoll_suite is 'sid'"),
        (changed("host", vmtoll_tuning={"governer": "x"}), "no setting 'governer'; there are: governor, turbo"),
        (changed("host", vmtoll_tuning={"smt": "maybe"}), "vmtoll_tuning.smt is 'maybe'"),
        (changed("big", vmtoll_http_port=65534), "vmtoll_http_port is 65534"),
        (changed("big", ansible_port=70000), "ansible_port is 70000"),
        (changed("big", ansible_connection="docker"), "ansible_connection is 'docker'"),
    ],
)  # fmt: skip
def test_every_command_judges_names_and_values(hosts: dict[str, Any], said: str) -> None:
    for purpose in ("load", "machines", "hosts"):
        assert any(said in each for _, each in found(hosts, purpose)), (purpose, found(hosts, purpose))


def test_a_name_of_ones_own_for_an_environment_is_a_warning() -> None:
    (fault,) = faults(InventoryData(data(**changed("big", vmtoll_environment="rack-7")), Path("lab.yml")))
    assert ((fault.level == "fail"), "rack-7" in fault.found) == (False, True)
    assert list(faults(InventoryData(data(**changed("big", vmtoll_environment="rack-7")), Path("x")), ["rack-7"])) == []


def test_what_yaml_made_of_on_and_off_is_a_setting() -> None:
    assert found(changed("host", vmtoll_tuning={"turbo": False, "smt": "on", "hugepages_2m": 8})) == []
    assert found(changed("host", ansible_connection="ansible.builtin.ssh")) == []


def test_groups_and_hosts_of_others_are_left_in_peace() -> None:
    others = {"db": {"group": "databases", "ansible_user": "root"}, "edge": {"group": "clients_of_others"}}
    assert found({**GOOD, **others}) == []
    for_all = {name: given | {"vmtoll_http_port": 8081} for name, given in {**GOOD, **others}.items()}
    assert found(for_all) == [], "what is set for all hosts makes none of them ours"
    parent = data(**GOOD) | {"rack7": {"hosts": ["big", "load"]}}
    assert list(faults(InventoryData(parent, Path("lab.yml")))) == [], "our hosts may be in more groups"


def test_every_error_is_told_at_once_with_file_host_and_key() -> None:
    wrong = {
        **GOOD,
        "load": GOOD["load"] | {"vmtoll_link": "fast", "vmtoll_back_s": "soon"},
        "small": GOOD["small"] | {"vmtoll_kvm_host": "hots"},
        "big": GOOD["big"] | {"vmtoll_worker": 4},
    }
    with pytest.raises(InventoryError) as told:
        check_inventory(InventoryData(data(**wrong), Path("lab.yml")), limited=False, purpose="load")
    first, *lines = str(told.value).splitlines()
    assert first.startswith("lab.yml: 4 errors; ")
    for start in ("load: vmtoll_back_s is 'soon'", "load: vmtoll_link is 'fast'", "small: vmtoll_kvm_host is 'hots'",
                  "big: unknown variable vmtoll_worker"):  # fmt: skip
        assert sum(line.startswith(f"  {start}") for line in lines) == 1, (start, lines)


def test_one_error_is_one_line() -> None:
    with pytest.raises(InventoryError, match=r"^lab\.yml: big: .* vmtoll_worker; .*vmtoll_workers") as told:
        check_inventory(
            InventoryData(data(**changed("big", vmtoll_worker=4)), Path("lab.yml")), limited=False, purpose="load"
        )
    assert "\n" not in str(told.value)


def test_a_variable_that_neither_ansible_nor_we_read_is_a_warning() -> None:
    hosts = changed("big", ansible_usr="root", ansible_ssh_private_key_file="k", ansible_become_method="sudo")
    (typo,) = faults(InventoryData(data(**changed("big", ansible_pyhton_interpreter="/bin/py")), Path("lab.yml")))
    assert "ansible_python_interpreter" in typo.advice and typo.level == "warn"
    assert list(faults(InventoryData(data(**changed("big", ansible_perl_interpreter="/p")), Path("lab.yml")))) == []
    (fault,) = faults(InventoryData(data(**hosts), Path("lab.yml")))
    assert (fault.machine, (fault.level == "fail")) == ("big", False)
    assert "ansible_usr" in fault.found and "ansible_user" in fault.advice


def test_what_is_not_to_be_measured_needs_neither_clients_nor_environments() -> None:
    hosts = {"host": GOOD["host"], "small": {**GOOD["small"]}}
    del hosts["small"]["vmtoll_environment"]
    assert found(hosts, purpose="machines") == []
    assert {machine for machine, _ in found(hosts)} == {"", "small"}
    assert [machine for machine, _ in found({"db": {"group": "databases"}}, purpose="machines")] == [""]


def test_hosts_of_any_group_may_be_tuned() -> None:
    hosts = {"db1": {"group": "databases", "vmtoll_tuning": {"governor": "performance"}}}
    assert found(hosts, purpose="hosts") == []
    assert [machine for machine, _ in found(hosts, purpose="machines")] == [""]


def test_names_at_one_address_have_ports_of_their_own() -> None:
    here = {"ansible_host": "127.0.0.1", "ansible_connection": "local"}
    hosts = {name: given | here for name, given in GOOD.items()}
    hosts["big"] = hosts["big"] | {"vmtoll_http_port": 8081}
    assert found(hosts) == []


def test_a_guest_has_one_name_on_its_host_whatever_runs_it() -> None:
    by_qmp = changed("small", vmtoll_domain=None, vmtoll_qmp_socket="/run/small.qmp")
    assert found(by_qmp) == []
    relative = changed("small", vmtoll_domain=None, vmtoll_qmp_socket="small.qmp")
    assert {machine for machine, _ in found(relative)} == {"small"}


def test_a_unit_starts_a_guest_of_qemu_and_alone_is_one_of_another_monitor() -> None:
    with_socket = changed("small", vmtoll_domain=None, vmtoll_qmp_socket="/q", vmtoll_unit="small.service")
    assert found(with_socket) == []
    assert found(changed("small", vmtoll_domain=None, vmtoll_unit="small.service")) == []


BY_QMP = GOOD["small"] | {"vmtoll_domain": None, "vmtoll_qmp_socket": "/run/small.qmp"}
WRONG = {
    # With both, every sign of a report would be inverted.
    "labels that contradict the groups": GOOD
    | {
        "big": GOOD["big"] | {"vmtoll_environment": "kvm-default"},
        "small": GOOD["small"] | {"vmtoll_environment": "metal"},
    },
    "metal and guest in each other's group": GOOD
    | {
        "host": {"group": "kvm_hosts", "ansible_host": "192.0.2.2"},
        "small": GOOD["big"] | {"ansible_host": "192.0.2.3", "vmtoll_kvm_host": "host", "vmtoll_domain": "small"},
        "big": {"group": "kvm_guests", "ansible_host": "192.0.2.2", "vmtoll_environment": "kvm-default"},
    },
    "a guest without its host": changed("small", vmtoll_kvm_host=None),
    "a guest without its domain": changed("small", vmtoll_domain=None),
    "a guest to be made, without both": changed(
        "small", vmtoll_kvm_host=None, vmtoll_domain=None, vmtoll_profile="kvm-default", vmtoll_cpus="1"
    ),
    "a guest at the address of metal": changed(
        "small", vmtoll_kvm_host=None, vmtoll_domain=None, ansible_host="big"
    ),
    # A wrong value hides nothing else, and what follows from it alone is not told again.
    "several wrong values": changed(
        "small", ansible_ssh_port="abc", vmtoll_environment="kvm-defualt", vmtoll_kvm_host="hots"
    )
    | {"big": GOOD["big"] | {"vmtoll_workers": "zero"}, "load": GOOD["load"] | {"vmtoll_link": "fast"}},
    "an unknown variable": changed("big", vmtoll_worker=4),
    "a password": changed("big", ansible_password="secret"),
    "load over IPv6": changed("big", ansible_host="2001:db8::1"),
    "a group that is nearly ours, which is missing": {**GOOD, "load": {"group": "client"}},
    "a group that is nearly ours, next to it": {**GOOD, "load2": {"group": "client"}},
    "a host in no group of ours": {**GOOD, "big2": {"group": "bare", "vmtoll_environment": "metal"}},
    "groups of others alone": {"db": {"group": "databases"}},
    "two ports": changed("big", vmtoll_http_port=8081),
    "a domain and a QMP socket": changed("small", vmtoll_qmp_socket="/run/small.qmp"),
    "one QMP socket twice": {**GOOD, "small": BY_QMP, "small-2": BY_QMP | {"vmtoll_environment": "kvm-tuned"}},
    # The agent of that host counts and resumes guests by name.
    "a guest of QEMU with the name of a domain": {
        **GOOD, "small": BY_QMP,
        "web": GOOD["small"] | {"vmtoll_environment": "kvm-tuned", "vmtoll_domain": "small"},
    },
    "a VM of Proxmox VE with a unit": changed(
        "small", vmtoll_domain=None, vmtoll_vmid=101, vmtoll_unit="small.service"
    ),
}  # fmt: skip


def test_the_words_of_what_is_wrong() -> None:
    def said(hosts: dict[str, Any]) -> list[str]:
        every = faults(InventoryData(data(**hosts), Path("lab.yml")))
        return [
            f"{fault.machine}: {fault.found.partition(LIST)[0]} / {fault.advice}"
            for fault in every
            if (fault.level == "fail")
        ]

    assert_snapshot(SNAPSHOT, {"What is wrong / and the way out": {name: said(hosts) for name, hosts in WRONG.items()}})
