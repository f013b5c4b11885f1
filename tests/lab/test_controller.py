"""`make demo` on a machine of its own: control groups of systemd, D-Bus, the system's own libvirt next to the lab's."""

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.lab.controller import booted
from vmtoll.builds.suite import guest_release
from vmtoll.paths import PROJECT

pytestmark = [pytest.mark.lab, pytest.mark.long]
# An emulated machine that emulates, or runs under KVM, the lab's guest: the lab 9 minutes, provisioning 5, the run 7.
PATIENCE_S = 4 * 3600
# The guests of the system's own libvirt, and the scopes that no session owns.
STATE = (
    "virsh -c qemu:///system list --all --name | sort; "
    "systemctl list-units --type=scope --plain --no-legend | awk '{ print $1 }' | grep -v ^session- | sort"
)

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """What runs a command on the machine; its output, stripped. Fails the test when the command fails."""
    with booted(tmp_path_factory.mktemp("controller")) as reach:

        def command(words: str) -> str:
            done = subprocess.run(
                [*reach, words],
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            return done.stdout.strip()

        yield command


def test_the_demo_runs_and_leaves_nothing(controller: Run) -> None:
    assert controller("cat /proc/1/comm; stat -fc %T /sys/fs/cgroup").split() == ["systemd", "cgroup2fs"]
    before = controller(STATE)
    assert "report.html" in controller(f"cd {PROJECT} && make demo SUITE={guest_release().suite} 2>&1")
    run = json.loads(controller(f"cat {PROJECT}/results/latest/run.json"))
    assert run["accelerators"]["kvm-default"] == "kvm"
    scopes = set(controller(STATE).splitlines()) - set(before.splitlines())
    assert scopes, "what the lab started lies in scopes of its own, and its guest is none of the system's"
    assert all(scope.endswith(".scope") for scope in scopes), scopes
    controller(f"cd {PROJECT} && make lab-down")
    assert controller(STATE) == before
