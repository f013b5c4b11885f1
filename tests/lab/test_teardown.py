"""The lab is gone when it is down, also when its building was killed half-way. Last: it takes the lab away."""

import subprocess
from pathlib import Path

import pytest

from tests.lab.the_lab import LAB, VMTOLL
from vmtoll.agent.applied import Applied

pytestmark = pytest.mark.lab


def left_behind() -> list[str]:
    """Name everything of the lab that is still there."""
    left = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(LAB) in line]
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    left += [line for line in namespaces.splitlines() if line.startswith("vmtoll-")]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{LAB}/" in command or "vmtoll-switch" in command:
            left.append(command)
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    left += [line for line in links.splitlines() if "vt-br0" in line or "sw-" in line]
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    left += [line for line in routes.splitlines() if "198.18." in line]
    return left + ([str(LAB)] if LAB.exists() else [])


SWAPPINESS = Path("/proc/sys/vm/swappiness")


def test_down_leaves_nothing_behind_and_twice_is_harmless(lab: Path) -> None:
    """Nor a change of a guest and its host, which a killed agent had no time to revert."""
    was = SWAPPINESS.read_text().strip()
    changes = Applied()
    changes.apply("killed", "", "false", 1.0, guest="kvm", sysctls={"vm.swappiness": str(int(was) + 1)})
    assert left_behind()
    assert SWAPPINESS.read_text().strip() != was
    for _ in range(2):
        subprocess.run([VMTOLL, "lab", "down"], check=True)
        assert left_behind() == []
    assert (SWAPPINESS.read_text().strip(), changes.note("kvm")) == (was, None)


@pytest.mark.parametrize(
    "moment",
    [
        "machines/client/pid",
        pytest.param("libvirt/run/libvirt-sock", marks=pytest.mark.guest_minutes),
        pytest.param("guests/kvm-console.log", marks=pytest.mark.guest_minutes),
    ],
)
def test_down_after_a_kill_in_the_middle_of_up(moment: str) -> None:
    subprocess.run([VMTOLL, "lab", "down"], check=True)
    with subprocess.Popen([VMTOLL, "lab", "up"], start_new_session=True) as building:
        while not (LAB / moment).exists():
            assert building.poll() is None, "the lab was up before it could be killed"
        # The whole session, as a closed terminal or an out-of-memory kill would leave it.
        subprocess.run(["pkill", "-KILL", "--session", str(building.pid)], check=True)
        building.wait()
    assert left_behind(), "the kill came too early to prove anything"
    subprocess.run([VMTOLL, "lab", "down"], check=True)
    assert left_behind() == []
