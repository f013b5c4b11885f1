"""What the checks before a run make of what they saw."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.snapshots import Sections, assert_snapshot
from tests.support.this_machine import data
from vmtoll import preflight
from vmtoll.agent.protocol import Route, SpeedSettings
from vmtoll.commands.preflight import summary
from vmtoll.machines.connection import AgentLine, diagnose_ssh
from vmtoll.model.complaint import Complaint
from vmtoll.model.inventory import Host
from vmtoll.preflight import Lab

SNAPSHOT = Path(__file__).with_name("snapshots") / "preflight.txt"
GOOD: dict[str, dict[str, Any]] = {
    "load": {"group": "clients", "vmtoll_link": "1gbit", "vmtoll_link_mbit": 1000},
    "big": {"group": "metal_hosts", "vmtoll_environment": "metal"},
    "small": {
        "group": "kvm_guests",
        "vmtoll_environment": "kvm-default",
        "vmtoll_kvm_host": "host",
        "vmtoll_domain": "small",
    },
    "host": {"group": "kvm_hosts"},
}


def contained(**variables: Any) -> dict[str, Any]:
    """The good inventory with a container that vmtoll makes."""
    box = {
        "group": "containers", "vmtoll_environment": "container", "vmtoll_container_host": "host", "vmtoll_cpus": "1",
        "vmtoll_prefix": 24, **variables,
    }  # fmt: skip
    return {**GOOD, "box": {key: value for key, value in box.items() if value is not None}}


def changed(host: str, **variables: Any) -> dict[str, Any]:
    """The good inventory with a host's variables changed, or without those that are None."""
    merged = {**GOOD[host], **variables}
    return {**GOOD, host: {key: value for key, value in merged.items() if value is not None}}


def test_a_good_inventory_is_reported_as_good() -> None:
    (finding,) = preflight.inventory(Lab(Path("lab.yml"), data(**GOOD)))
    assert finding.level == "ok"
    assert "1 client, 1 metal, 1 kvm_guest, 1 kvm_host" in finding.found


@pytest.mark.parametrize(
    ("hosts", "machine", "found", "advice"),
    [
        (contained(vmtoll_environment="metal"), "box", "in the group `containers`, and vmtoll_env", "disagree"),
        (changed("big", vmtoll_environment="container"), "big", "in the group `metal_hosts`", "disagree"),
        (changed("small", vmtoll_environment="container"), "small", "in the group `kvm_guests`", "disagree"),
        (contained(vmtoll_profile="kvm-default"), "box", "vmtoll_profile says that it is a guest", "disagree"),
        (contained(vmtoll_container_host=None), "box", "vmtoll_container_host is not set", "host that it runs on"),
        (contained(vmtoll_prefix=None), "box", "gets no address by DHCP", "length of its network's prefix"),
        (contained(vmtoll_environment="container-host-network"), "box", "want the host's port 22", "a free port"),
        ({"big": GOOD["big"]}, "", "the group `clients` is empty", "sends the load"),
        (
            {"load": GOOD["load"]},
            "",
            "`metal_hosts`, `containers` and `kvm_guests` are empty",
            "machines to be measured",
        ),
        (changed("big", vmtoll_environment=None), "big", "vmtoll_environment is not set", "metal, or the name"),
        (changed("big", vmtoll_environment="matel"), "big", "did you mean 'metal'", "Correct it"),
        (changed("small", vmtoll_domain=None), "small", "vmtoll_domain is not set", "Set both, or omit both"),
        (changed("small", vmtoll_kvm_host="hots"), "small", "'hots', which is not in the group `kvm_hosts`", "Add it"),
        (changed("big", vmtoll_http_port=80), "", "vmtoll_http_port is 80 on big, 8080 on small", "Set it once"),
        (changed("load", vmtoll_link_mbit=100), "load", "vmtoll_link_mbit is 100", "Set vmtoll_link_mbit: 1000."),
        (changed("big", vmtoll_worker=4), "big", "unknown variable vmtoll_worker", "mean vmtoll_workers?"),
    ],
)
def test_errors_of_an_inventory_are_named(hosts: dict[str, Any], machine: str, found: str, advice: str) -> None:
    wrong = list(preflight.inventory(Lab(Path("lab.yml"), data(**hosts))))
    assert [finding.level for finding in wrong] == ["fail"], wrong
    assert wrong[0].machine == machine
    assert found in wrong[0].found
    assert advice in wrong[0].advice


def test_two_machines_of_one_environment_are_to_be_chosen_from() -> None:
    two = {**GOOD, "other": GOOD["big"]}
    levels = [finding.level for finding in preflight.inventory(Lab(Path("lab.yml"), data(**two)))]
    assert levels == ["warn", "ok"]
    apart = data(**two) | {
        "cells": {"children": ["one", "two"]},
        "one": {"hosts": ["big"]},
        "two": {"hosts": ["other"]},
    }
    assert [finding.level for finding in preflight.inventory(Lab(Path("lab.yml"), apart))] == ["ok"]


TWO_LINKS = {**GOOD, "slow": {"group": "clients", "vmtoll_link": "100mbit", "vmtoll_link_mbit": 100}}


def test_clients_of_different_links_are_to_be_chosen_from() -> None:
    found = preflight.inventory(Lab(Path("lab.yml"), data(**TWO_LINKS)))
    assert [finding.level for finding in found] == ["warn", "ok"]


def test_load_runs_between_machines_of_one_test_bed() -> None:
    two = data(load1=GOOD["load"], load2=GOOD["load"], big1=GOOD["big"], small=GOOD["small"], host=GOOD["host"])
    cells = {"one": {"hosts": ["load1", "big1"]}, "two": {"hosts": ["load2", "small", "host"]}}

    def pairs(tree: dict[str, Any]) -> list[tuple[str, str]]:
        lab = Lab(Path("lab.yml"), tree)
        lab.lines = {host.name: AgentLine(host) for host in lab.hosts}
        return [(client.name, sut.name) for client, sut in lab.pairs()]

    assert pairs(two) == [("load1", "big1"), ("load1", "small"), ("load2", "big1"), ("load2", "small")]
    assert pairs(two | {"cells": {"children": ["one", "two"]}} | cells) == [("load1", "big1"), ("load2", "small")]


def test_only_kvm_hosts_of_selected_guests_count_under_a_limit() -> None:
    tree = data(**GOOD, idle={"group": "kvm_hosts"})
    assert [host.name for host in Lab(Path("lab.yml"), tree).hosts] == ["load", "big", "small", "host", "idle"]
    limited = Lab(Path("lab.yml"), tree, limited=True)
    assert [host.name for host in limited.hosts] == ["load", "big", "small", "host"]


def test_a_wrong_value_is_one_error_and_the_other_machines_are_checked() -> None:
    lab = Lab(Path("lab.yml"), data(**changed("small", vmtoll_back_s="soon")))
    (wrong,) = preflight.inventory(lab)
    assert (wrong.machine, wrong.level, "vmtoll_back_s is 'soon'" in wrong.found) == ("small", "fail", True)
    assert [host.name for host in lab.hosts] == ["load", "big", "host"]


@pytest.mark.parametrize(
    ("printed", "matter", "advice"),
    [
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
         "not the one that is known for big.example", "ssh-keygen -R big.example"),
        ("No ED25519 host key is known for x\nHost key verification failed.", "is not known here", "ssh root@big"),
        ("root@big.example: Permission denied (publickey).", "refuses the key of root (~/.ssh/lab)", "authorized_keys"),
        ("ssh: Could not resolve hostname big.example: Name or service not known", "does not resolve", "ansible_host"),
        ("ssh: connect to host big.example port 22: Connection refused", "nothing listens on port 22", "start sshd"),
        ("ssh: connect to host big.example port 22: No route to host", "nothing answers at big.example", "switched on"),
        ("kex_exchange_identification: read: Connection reset by peer\nConnection reset by 192.0.2.7 port 22",
         "ended the connection before the login (Connection reset by", "MaxStartups"),
        ("ssh: connect to host big.example port 22: Connection timed out", "nothing answers at big", "firewall"),
        ("/root/.ssh/config: terminating, 1 bad configuration options",
         "ssh failed: /root/.ssh/config: terminating, 1 bad", "by hand: `ssh root@big"),
        ("Unable to negotiate with 192.0.2.7 port 22: no matching host key type found. Their offer: ssh-rsa",
         "ssh failed: Unable to negotiate", "by hand"),
        ("proxy dialer did not pass back a connection", "nothing answers at big.example, port 22", "switched on"),
        ("", "ssh failed: no word from ssh", "by hand"),
    ],
)  # fmt: skip
def test_messages_of_ssh_become_a_sentence(printed: str, matter: str, advice: str) -> None:
    variables = {"ansible_host": "big.example", "ansible_user": "root", "ansible_ssh_private_key_file": "~/.ssh/lab"}
    said = diagnose_ssh(Host("big", "metal", variables), printed)
    assert matter in said[0]
    assert advice in said[1]


@pytest.mark.parametrize(
    ("ahead_s", "error_s", "level"),
    [(0.009, 0.0, "ok"), (-0.02, 0.001, "warn"), (0.02, 0.015, "ok"), (-2.5, 0.1, "fail"), (2.05, 0.1, "warn")],
)
def test_a_clock_is_judged_by_what_is_sure(ahead_s: float, error_s: float, level: str) -> None:
    assert preflight.judge_clock("kvm", "client", ahead_s, error_s).level == level


def test_a_link_matches_the_inventory_in_both_directions() -> None:
    metal, guest = Host("metal", "metal"), Host("kvm", "kvm_guest")
    assert preflight.judge_link("client", metal, 941, 938, 1000, None).level == "ok"
    assert preflight.judge_link("client", metal, 941, 94, 1000, None).level == "fail"
    assert preflight.judge_link("client", guest, 300, 700, 1000, None).level == "warn"
    assert "says 100" in preflight.judge_link("client", metal, 941, 938, 100, None).found
    assert preflight.judge_link("client", metal, 941, 938, 100, None).level == "fail"
    assert preflight.judge_link("client", metal, 94, 93, None, 1000).level == "warn"
    assert preflight.judge_link("client", metal, 94, 93, None, None).level == "ok"


SEEN: Route = {
    "error": "", "remote": "192.0.2.20", "address": "192.0.2.10", "interface": "eth0", "mtu": 1500, "mac": "aa",
    "speed_mbit": None, "on_link": True, "gateway": None, "neighbour": "bb",
}  # fmt: skip


@pytest.mark.parametrize(
    ("there", "back", "said"),
    [
        ({}, {"mac": "bb"}, "one network segment"),
        ({}, {"mac": "bb", "mtu": 9000}, "the MTU is 1500 on client, 9000 on metal"),
        ({}, {"mac": "cc"}, "sees bb, not metal's own cc"),
        ({"on_link": False, "gateway": "192.0.2.1"}, {"mac": "bb"}, "a router is between them (192.0.2.1)"),
    ],
)
def test_devices_between_two_machines_are_named(there: dict[str, Any], back: dict[str, Any], said: str) -> None:
    routes = (cast(Route, {**SEEN, **change}) for change in (there, back))
    (finding,) = preflight.judge_network("client", "metal", *routes)
    assert said in finding.found
    assert finding.level == ("ok" if said == "one network segment" else "warn")


def test_machines_of_several_releases_are_one_finding() -> None:
    assert list(preflight.judge_releases({"client": "Debian 13", "metal": "Debian 13"})) == []
    environments = {"metal": False, "kvm-default": False, "kvm-default-release-bookworm": True}
    assert environments == {
        name: preflight.has_own_release(Host(name, "kvm_guest", {"vmtoll_environment": name})) for name in environments
    }
    (differ,) = preflight.judge_releases(THREE)
    assert differ.level == "fail"
    assert "vmtoll provision --suite" in differ.advice


THREE = {"client": "Debian 13", "metal": "Debian 13", "kvm": "Debian 12"}
METAL, KVM = {"siege": "4.1", "h2o": "2", "oha": "ab12"}, {"siege": "4.0", "oha": "ab12"}
TWO, PACKAGED = {"metal": "Debian 13", "kvm": "Debian 12"}, {"siege", "h2o"}
MAY_LACK = {"metal": ["oha"], "kvm": ["oha"]}


def tools(*given: Any) -> list[Complaint]:
    return list(preflight.judge_versions("load tools", *given))


ON_OTHER = METAL | {"siege": "4.2"}
DIFFERENT = {
    "of no package, across releases": tools({"metal": METAL, "kvm": KVM | {"oha": "cd34"}}, {}, TWO, PACKAGED),
    "of a package, within a release": tools(
        {"metal": METAL, "other": ON_OTHER, "kvm": KVM}, {}, TWO | {"other": "Debian 13"}, PACKAGED
    ),
    "of a package, without releases": tools({"client": KVM, "metal": KVM | {"siege": "4.1"}}),
    "of what another machine may lack": tools(
        {"client": KVM, "metal": KVM | {"oha": "cd34"}, "kvm": {"siege": "4.0"}}, MAY_LACK
    ),
    "absent on one": tools({"client": {"siege": "4.0"}, "metal": {"siege": "4.0", "oha": "cd34"}}),
}
CALM = SpeedSettings(governors=[], turbo=False, smt="notsupported", irqbalance=False)
LOOSE = SpeedSettings(governors=["performance", "powersave"], turbo=True, smt="on", irqbalance=True)


@pytest.mark.parametrize("results", DIFFERENT.values(), ids=DIFFERENT)
def test_another_version_is_one_error(results: list[Complaint]) -> None:
    assert [result.level for result in results] == ["fail"]


def test_packages_are_compared_within_a_release_and_thing_by_thing() -> None:
    assert tools({"metal": METAL, "kvm": KVM}, {}, TWO, PACKAGED) == []
    assert [f.level for f in tools({"client": KVM, "metal": KVM})] == ["ok"]
    absent = tools({"client": KVM, "metal": {}})
    assert [(f.machine, f.level) for f in absent] == [("metal", "warn"), ("", "ok")]
    seen = {"client": KVM, "metal": KVM, "kvm": {"siege": "4.0"}}
    assert [f.level for f in tools(seen, MAY_LACK)] == ["ok"]


def test_varying_settings_give_a_warning() -> None:
    assert preflight.judge_settings(Host("big", "metal"), CALM).level == "ok"
    assert preflight.judge_settings(Host("big", "metal"), LOOSE).level == "warn"


def test_the_words_of_the_checks() -> None:
    def said(results: Iterable[Complaint]) -> list[str]:
        return [f"{each.level} {each.machine}: {each.found} / {each.advice or '-'}" for each in results]

    metal, tuned = Host("big", "metal"), Host("big", "metal", {"vmtoll_tuning": {"smt": "off"}})
    sections: Sections = {
        "Inventory": {"clients of two links": said(preflight.inventory(Lab(Path("lab.yml"), data(**TWO_LINKS))))},
        "Link": {
            "slow on the way back": said([preflight.judge_link("client", metal, 941, 94, 1000, None)]),
            "faster than it says": said([preflight.judge_link("client", metal, 941, 938, 100, None)]),
        },
        "Releases": {"two": said(preflight.judge_releases(THREE))},
        "Versions": {name: said(results) for name, results in DIFFERENT.items()},
        "Settings": {
            "that vary": said([preflight.judge_settings(metal, LOOSE)]),
            "that `vmtoll tune` would hold": said([preflight.judge_settings(tuned, LOOSE)]),
        },
        "The last line": {
            "errors": summary(Counter({"fail": 3, "warn": 2, "ok": 12})),
            "none": summary(Counter({"warn": 1, "ok": 12})),
        },
    }
    assert_snapshot(SNAPSHOT, sections)
