"""A shaped link treats a server as a card of this rate would: it queues a thousand packets, and loses none."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.the_lab import VMTOLL, Ssh
from vmtoll.trial.gates import RETRANSMITTED_PCT

pytestmark = pytest.mark.lab

PROGRAM, PORT = (Path(__file__).parent / "transfer.py").read_text(), 8099
RATE_MBIT, PACKETS, PACKET_BYTES, SEGMENT_BYTES = 100, 1000, 1514, 1448
QUEUE_MS = PACKETS * PACKET_BYTES * 8 / (RATE_MBIT * 1e3)
ADDRESSES = {"metal": "198.18.0.20", "kvm": "198.18.0.30"}


@pytest.fixture(scope="module")
def shaped(lab: Path) -> Iterator[Path]:
    """The lab with a link of 100 Mbit/s, and afterwards with its usual one."""
    subprocess.run([VMTOLL, "lab", "up", "--link", f"{RATE_MBIT}mbit"], check=True, stdin=subprocess.DEVNULL)
    yield lab
    subprocess.run([VMTOLL, "lab", "up"], check=True, stdin=subprocess.DEVNULL)


def dropped(namespace: str, device: str) -> int:
    """Packets that the queues of a device dropped."""
    argv = ["tc", "-n", namespace, "-s", "-j", "qdisc", "show", "dev", device]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return sum(queue["drops"] for queue in json.loads(shown))


@pytest.mark.guest_minutes
@pytest.mark.parametrize(("connections", "size"), [(1, 12_500_000), (100, 100_000)], ids=["one-bulk", "hundred-small"])
@pytest.mark.parametrize("machine", ADDRESSES)
def test_it_loses_nothing_and_queues_no_longer_than_a_card(
    shaped: Path, ssh: Ssh, machine: str, connections: int, size: int
) -> None:
    words = f"{connections} {size}"
    reach = ["ssh", "-F", str(shaped / "ssh_config")]
    for each in (machine, "client"):
        subprocess.run([*reach, each, "cat > /tmp/transfer.py"], input=PROGRAM, text=True, check=True)
    before = dropped("vmtoll-switch", "sw-client")
    argv = [*reach, machine, f"python3 /tmp/transfer.py {PORT} {words}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "waiting\n"
        ssh("client", f"python3 /tmp/transfer.py {ADDRESSES[machine]} {PORT} {words}")
        figures = json.loads(sender.stdout.read())
    print(machine, words, figures)
    # TCP may send a probe again where nothing was lost: an answer that waits in the queue is late for it.
    assert figures["sent_again"] <= RETRANSMITTED_PCT / 100 * connections * size / SEGMENT_BYTES
    assert dropped("vmtoll-switch", "sw-client") == before
    assert figures["longest_rtt_ms"] < QUEUE_MS
    assert 0.8 * RATE_MBIT < figures["mbit_per_s"] < 1.1 * RATE_MBIT  # the link was full
