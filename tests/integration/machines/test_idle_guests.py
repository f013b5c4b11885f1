"""Idle guests are paused during a trial: a substitute for virsh stops a real process in place of QEMU."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.trial.test_guests_together import guests
from tests.support.measured import run
from tests.support.records import primary, records_of
from vmtoll.agent.virsh import virsh
from vmtoll.model.event import Event, NotPaused, Phase, TrialStep
from vmtoll.spec.catalog import Registry

__all__ = ["guests"]

Rewrite = Callable[..., Path]

VIRSH = """\
#!/bin/sh
[ "$1 $2" = "-c test:///default" ] || exit 1
echo "$3 $4" >>{folder}/asked
pid=$(pgrep -f "name guest=$4,")
case $3 in
suspend) kill -STOP "$pid" ;;
resume) kill -CONT "$pid" ;;
domstate) grep -q "^State:.T" "/proc/$pid/status" && echo paused || echo running ;;
esac
"""


def qemu_of(guest: str) -> int:
    return int(subprocess.run(["pgrep", "-f", f"name guest={guest},"], capture_output=True, check=True).stdout)


def stopped(guest: str) -> bool:
    return Path(f"/proc/{qemu_of(guest)}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def libvirt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virsh that stops and continues the processes of the fixture `guests`; the folder with what it was asked."""
    folder = tmp_path / "libvirt"
    folder.mkdir()
    (folder / "virsh").write_text(VIRSH.format(folder=folder))
    (folder / "virsh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_a_guest_is_paused_while_metal_is_measured_and_always_resumed(
    project: Registry, guests: Path, tmp_path: Path, rewrite: Rewrite, libvirt: Path
) -> None:
    seen: dict[str, set[bool]] = {}

    def look(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.MEASURING:
            seen.setdefault(event.spec.arm.environment, set()).add(stopped("guest-1"))

    os.kill(qemu_of("guest-1"), signal.SIGSTOP)  # as a run leaves it that was killed with its agents
    experiment = rewrite(blocks=2, noise_floor=None)
    records = records_of(run(experiment, guests, tmp_path / "r", registry=project, listener=look))
    assert seen == {"metal": {True}, "metal-two": {False}}
    assert not stopped("guest-1")
    paused = {(record.arm.environment, record.conditions.guests_paused) for record in records}
    assert paused == {("metal", 1), ("metal-two", None)}
    assert all(primary(record).successful == primary(record).requests for record in records)
    words = (libvirt / "asked").read_text().split()
    assert words.count("resume") == words.count("suspend") + 1
    assert words.count("domstate") == 1, "only before the run"


class KilledError(Exception):
    pass


def test_a_run_that_fails_resumes_what_it_paused(
    project: Registry, guests: Path, tmp_path: Path, rewrite: Rewrite, libvirt: Path
) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.MEASURING and event.spec.arm.environment == "metal":
            assert stopped("guest-1")
            raise KilledError

    with pytest.raises(KilledError):
        run(rewrite(blocks=1, noise_floor=None), guests, tmp_path / "r", registry=project, listener=fail)
    assert not stopped("guest-1")


@pytest.mark.parametrize("pause", [True, False])
def test_a_guest_that_cannot_be_paused_is_reported_once_and_the_run_continues(
    project: Registry, guests: Path, tmp_path: Path, rewrite: Rewrite, libvirt: Path, pause: bool
) -> None:
    (libvirt / "virsh").write_text("#!/bin/sh\necho no such domain >&2\nexit 1\n")
    events: list[Event] = []
    experiment = rewrite(blocks=2, noise_floor=None, pause_idle_guests=pause)
    records = records_of(run(experiment, guests, tmp_path / "r", registry=project, listener=events.append))
    told = [event for event in events if isinstance(event, NotPaused)]
    assert told == ([NotPaused("guest-1", "host: pause: virsh suspend guest-1: no such domain")] if pause else [])
    assert {r.conditions.guests_paused for r in records if r.arm.environment == "metal"} == {0}
    assert all(primary(record).successful == primary(record).requests for record in records)


def test_virsh_accepts_the_commands() -> None:
    """libvirt's driver for tests has a domain `test`, which runs."""
    assert virsh("test:///default", "domstate", "test") == "running"
    assert "suspended" in virsh("test:///default", "suspend", "test")
    with pytest.raises(RuntimeError, match="virsh resume test: "):
        virsh("test:///default", "resume", "test")  # another process, another test driver: it is not paused there
