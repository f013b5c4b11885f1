"""Faults between client and server: a link too thin, packets lost, connections turned away."""

from pathlib import Path

import pytest

from tests.lab.faults import changed, frozen, measured, once, ruled
from tests.lab.records import BY_CLIENT, BY_INJECTION, finding, findings, number, undisturbed
from tests.lab.the_lab import Ssh
from vmtoll.model.event import Phase
from vmtoll.model.finding import Code, Validity

pytestmark = pytest.mark.lab

TO_CLIENT = ["tc", "-n", "vmtoll-switch", "qdisc"]
TBF = ["tbf", "rate", "50mbit", "burst", "128kb", "latency", "50ms"]
NFT = ["ip", "netns", "exec", "vmtoll-client", "nft"]


@pytest.mark.injects(Code.LINK_BOUND)
def test_a_link_shaped_below_the_load(lab: Path, tmp_path: Path) -> None:
    """To what `lab up --link 50mbit` would shape it, without rebuilding the lab. A full link also drops packets."""
    shape = [*TO_CLIENT, "add", "dev", "sw-client", "root", *TBF]
    inventory = {"vmtoll_link": "50mbit", "vmtoll_link_mbit": 50}
    with ruled([shape], [[*TO_CLIENT, "del", "dev", "sw-client", "root"]]):
        record = measured(tmp_path, inventory=inventory, link="50mbit", duration_s=3.0)[0]
    assert finding(record, Code.LINK_BOUND).machine == "client"
    assert 90 < number(record.resources.link_used_pct) < 110
    assert record.validity is Validity.SUSPECT
    assert undisturbed(record) == {Code.LINK_BOUND}


@pytest.mark.injects(Code.RETRANSMITS)
def test_packets_lost_on_their_way(lab: Path, tmp_path: Path) -> None:
    """A connection that waits to send again stalls its user for 200 ms or longer, also at the start.

    Every 20th packet is lost, not one of 50 by chance: stalled users ask for a few hundred packets only, of which
    chance may spare nearly all.
    """
    rules = [
        [*NFT, "add table inet lossy"],
        [*NFT, "add chain inet lossy input { type filter hook input priority 0; }"],
        [*NFT, "add rule inet lossy input tcp sport 8080 numgen inc mod 20 == 0 drop"],
    ]
    with ruled(rules, [[*NFT, "delete table inet lossy"]]):
        record = measured(tmp_path, duration_s=2.0)[0]
    assert "metal" in {one.machine for one in findings(record, Code.RETRANSMITS)}
    assert number(record.conditions.retransmitted_pct) > 0.5
    waits = {Code.STALLED, Code.MEAN_OVER_P99}
    assert undisturbed(record) <= waits | BY_CLIENT


@pytest.mark.injects(Code.LISTEN_DROPS)
def test_a_listen_queue_of_one(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """A new connection for every request, and the server stands still for a moment: the queue overflows."""
    usual = ssh("metal", "sysctl -n net.core.somaxconn")
    tiny = "sysctl -qw net.core.somaxconn={}".format
    with changed(ssh, "metal", tiny(1), tiny(usual)):
        closing = {"tool": "siege", "keep_alive": False}
        inject = once(Phase.MEASURING, frozen(ssh, 0.3), "siege")
        record = measured(tmp_path, inject, closing, duration_s=2.0)[0]
    assert finding(record, Code.LISTEN_DROPS).machine == "metal"
    assert number(record.conditions.listen_drops) > 0
    waits = {Code.STALLED, Code.MEAN_OVER_P99}
    assert undisturbed(record) - {Code.LISTEN_DROPS} <= waits | BY_CLIENT | BY_INJECTION
