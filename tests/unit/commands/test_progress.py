"""What a person reads while a run goes on: one line an event, the steps of a trial on the live line only."""

from dataclasses import replace
from pathlib import Path

import pytest

from vmtoll.commands.progress import Progress, line_of
from vmtoll.model.event import (
    ComparingMachines,
    Connecting,
    Event,
    LookEnded,
    Phase,
    RunEnded,
    Skipped,
    TrialEnded,
    TrialStep,
)
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import BASELINE, Accelerator, Arm, ClientPlace, Scenario, TrialRecord, TrialSpec
from vmtoll.model.until import Compared, Look, Standing, Stop

SPEC = TrialSpec(1, 2, Arm("kvm-default", 2), Scenario("nginx", "site-rate", Load(LoadKind.RATE, 300)))
STEP = TrialStep(spec=SPEC, attempt=1, number=2, trials=6, phase=Phase.STARTING, left_s=40.0)
RECORD = TrialRecord(
    run_id="run", block=1, order=2, attempt=1, arm=SPEC.arm, accelerator=Accelerator.KVM, scenario=SPEC.scenario,
    client=ClientPlace.REMOTE, clients=1, guests=1, started_at="2026-11-22T12:00:00.000+00:00",
)  # fmt: skip
LOOK = Look(
    blocks=6, measured_s=90.0, share=0.2, decided=1, narrow=1, refused=1,
    open=[
        Compared(standing=Standing.OPEN, metric="throughput", scenarios=[SPEC.scenario], claim="the guest is slower"),
        Compared(
            standing=Standing.OPEN, metric="tail", scenarios=[SPEC.scenario], arms=[BASELINE, Arm("kvm-default")],
            half_width_pct=4.25,
        ),
    ],
)  # fmt: skip
STOLEN = replace(RECORD, findings=(Finding(Code.STEAL, 0.7, 0.5),) * 2)
LOST = replace(RECORD, findings=(Finding(Code.HOST_LOST, detail="guest: no answer to ping within 15 s"),))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Skipped("httpd-2003", "its archive cannot be had"), "skipped: httpd-2003: its archive cannot be had"),
        (Connecting(6, 240.0), "connect: reaching the machines, 4 min left"),
        (ComparingMachines(6, 60.0), "facts: comparing the machines, 60 s left"),
        (TrialEnded(RECORD, 2, 6, 40.0), "trial 2 of 6: nginx on kvm-default#2: valid, 40 s left"),
        (TrialEnded(STOLEN, 2, 6, 40.0), "trial 2 of 6: nginx on kvm-default#2: suspect (steal), 40 s left"),
        (
            TrialEnded(LOST, 2, 6, 40.0),
            "trial 2 of 6: nginx on kvm-default#2: invalid (host-lost): guest: no answer to ping within 15 s, "
            "40 s left",
        ),
        (
            LookEnded(LOOK, 10, None),
            "look: after 6 blocks 2 of 5 comparisons are open (“the guest is slower”; tail of nginx, site-rate 300, on "
            "kvm-default ±4.25%); next look after 10 blocks",
        ),
        (
            LookEnded(LOOK.model_copy(update={"open": [], "narrow": 3}), None, Stop.NARROW),
            "look: after 6 blocks 0 of 5 comparisons are open; all others are decided or known well enough",
        ),
        (RunEnded(Path("/r/tiny/1"), 6), "done: /r/tiny/1, 0 s left"),
    ],
)
def test_an_event_is_one_line(event: Event, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(event).plain == line
    with Progress() as progress:
        progress(event)
    assert capsys.readouterr().err == f"vmtoll: {line}\n"


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (STEP, "nginx on kvm-default#2: starting"),
        (
            replace(STEP, phase=Phase.MEASURING, tool="oha", role=Role.CROSSCHECK),
            "nginx on kvm-default#2: oha measures",
        ),
        (
            replace(STEP, phase=Phase.RECOVERING, machine="guest", limit_s=300.0, detail="the agent ended"),
            "guest is gone (the agent ended); bringing it back, or waiting up to 300 s for it",
        ),
        (
            replace(STEP, phase=Phase.NEIGHBOUR, tool="vegeta", rate_rps=300.4),
            "nginx on kvm-default#2: vegeta sends 300 requests per second to the neighbour",
        ),
    ],
)
def test_a_step_is_for_the_live_line_only(step: TrialStep, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(step).text == text
    with Progress() as progress:
        progress(step)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_words(phase: Phase) -> None:
    assert line_of(replace(STEP, phase=phase, tool="siege", machine="guest")).text
