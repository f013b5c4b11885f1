"""Faults between client and server: a link too thin, packets lost, connections turned away."""

from pathlib import Path

import pytest
from planted import changed, frozen, measured, once, reasons, ruled
from the_lab import Ssh

pytestmark = pytest.mark.lab

TO_CLIENT = ["tc", "-n", "vmtoll-switch", "qdisc"]
TBF = ["tbf", "rate", "50mbit", "burst", "128kb", "latency", "50ms"]
NFT = ["ip", "netns", "exec", "vmtoll-client", "nft"]


def test_a_link_shaped_below_the_load(lab: Path, tmp_path: Path) -> None:
    """To what `lab up --link 50mbit` would shape it, without building the lab anew."""
    shape = [*TO_CLIENT, "add", "dev", "sw-client", "root", *TBF]
    inventory = {"vmtoll_link": "50mbit", "vmtoll_link_mbit": 50}
    with ruled([shape], [[*TO_CLIENT, "del", "dev", "sw-client", "root"]]):
        row = measured(tmp_path, inventory=inventory, link="50mbit", duration_s=3.0)[0]
    assert "% of the line rate" in reasons(row)["link-bound"]
    assert 90 < float(row["link_used_pct"]) < 110
    assert row["verdict"] == "suspect"


def test_packets_lost_on_their_way(lab: Path, tmp_path: Path) -> None:
    rules = [
        [*NFT, "add table inet lossy"],
        [*NFT, "add chain inet lossy input { type filter hook input priority 0; }"],
        [*NFT, "add rule inet lossy input tcp sport 8080 numgen random mod 50 == 0 drop"],
    ]
    with ruled(rules, [[*NFT, "delete table inet lossy"]]):
        row = measured(tmp_path)[0]
    assert reasons(row)["retransmits"].startswith("metal sent "), row["reasons"]
    assert float(row["retransmitted_pct"]) > 0.5


def test_a_listen_queue_of_one(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """A new connection for every request, and the server stands still for a moment: the queue overflows."""

    usual = ssh("metal", "sysctl -n net.core.somaxconn")
    tiny = "sysctl -qw net.core.somaxconn={}".format
    with changed(ssh, "metal", tiny(1), tiny(usual)):
        closing = {"tool": "siege", "keep_alive": False}
        row = measured(tmp_path, once("siege measures", frozen(ssh, 0.3)), closing, duration_s=2.0)[0]
    assert reasons(row)["listen-drops"].startswith("metal turned "), row["reasons"]
    assert int(row["listen_drops"]) > 0
