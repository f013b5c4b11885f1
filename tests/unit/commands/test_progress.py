"""What a person reads while a run goes on: a live display on a terminal, a line a block elsewhere."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.records import BASELINE
from tests.support.snapshots import assert_snapshot
from vmtoll.commands.progress import Progress, lines_of, summary
from vmtoll.model.event import (
    Absence,
    BlockEnded,
    ComparingMachines,
    Connecting,
    Event,
    LookEnded,
    MachineStep,
    NotMeasured,
    Phase,
    RunEnded,
    TrialEnded,
    TrialStep,
)
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import Accelerator, Arm, ClientPlace, Measurement, Scenario, Times, TrialRecord, TrialSpec
from vmtoll.model.until import ComparisonState, Look, LookComparison, Stop

SNAPSHOT = Path(__file__).with_name("snapshots") / "progress.txt"
CONNECTING = Connecting(6, 240.0, "metal")
SPEC = TrialSpec(1, 2, Arm("kvm-default", 2), Scenario("nginx", "site-rate", Load(LoadKind.RATE, 300)))
STEP = TrialStep(spec=SPEC, attempt=1, number=2, trials=6, blocks=3, phase=Phase.STARTING, left_s=40.0)
RECORD = TrialRecord(
    run_id="run", block=1, order=2, attempt=1, arm=SPEC.arm, accelerator=Accelerator.KVM, scenario=SPEC.scenario,
    client=ClientPlace.REMOTE, clients=1, guests=1, started_at="2026-11-22T12:00:00.000+00:00",
)  # fmt: skip
LOOK = Look(
    blocks=6, measured_s=90.0, share=0.2, decided=1, narrow=1, refused=1,
    open=[
        LookComparison(
            standing=ComparisonState.OPEN, metric="throughput", scenarios=[SPEC.scenario], claim="the guest is slower"
        ),
        LookComparison(
            standing=ComparisonState.OPEN, metric="tail", scenarios=[SPEC.scenario],
            arms=[BASELINE, Arm("kvm-default")], half_width_pct=4.25,
        ),
    ],
)  # fmt: skip
STOLEN = replace(RECORD, findings=(Finding(Code.STEAL, 0.7, 0.5),) * 2)
LOST = replace(RECORD, findings=(Finding(Code.HOST_LOST, detail="guest: no answer to ping within 15 s"),))


SLOW = replace(
    RECORD, order=3, findings=(Finding(Code.RATE_NOT_REACHED, 0.91, 0.99, detail="300", tool="oha", machine="client"),)
)
SLOWER = replace(
    RECORD, order=4, arm=BASELINE,
    findings=(Finding(Code.RATE_NOT_REACHED, 0.64, 0.99, detail="300", tool="oha", machine="client"),),
)  # fmt: skip
BLOCK = BlockEnded(1, 6, {Validity.VALID: 8, Validity.SUSPECT: 2}, 240.0)


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (NotMeasured("httpd-2003", "its archive cannot be had"), ["skipped: httpd-2003: its archive cannot be had"]),
        (CONNECTING, ["connect: reaching the machines, 4 min left"]),
        (ComparingMachines(6, 60.0), ["facts: comparing the machines, 60 s left"]),
        (TrialEnded(RECORD, 2, 6, 40.0), []),
        (TrialEnded(STOLEN, 2, 6, 40.0), []),
        (
            TrialEnded(LOST, 2, 6, 40.0, again=True),
            [
                "trial 2 of 6: nginx on kvm-default#2: invalid (host-lost): guest: no answer to ping within 15 s; "
                "vmtoll measures the block again"
            ],
        ),
        (
            TrialEnded(replace(RECORD, findings=(Finding(Code.TOOL_FAILED, detail="siege: killed"),)), 2, 6, 40.0),
            ["trial 2 of 6: nginx on kvm-default#2: invalid (tool-failed): siege: killed"],
        ),
        (BLOCK, ["block 1 of 6: 8 valid, 2 suspect, 0 invalid, 4 min left"]),
        (replace(BLOCK, block=6, left_s=0.0), ["block 6 of 6: 8 valid, 2 suspect, 0 invalid"]),
        (replace(BLOCK, block=1, blocks=25), []),
        (replace(BLOCK, block=3, blocks=25), ["block 3 of 25: 8 valid, 2 suspect, 0 invalid, 4 min left"]),
        (replace(BLOCK, block=25, blocks=25, left_s=0.0), ["block 25 of 25: 8 valid, 2 suspect, 0 invalid"]),
        (
            LookEnded(LOOK, 10, None),
            [
                "look: after 6 blocks 2 of 5 comparisons are open (“the guest is slower”; tail of nginx, "
                "site-rate 300, on kvm-default ±4.25%); next look after 10 blocks"
            ],
        ),
        (
            LookEnded(LOOK.model_copy(update={"open": [], "narrow": 3}), None, Stop.NARROW),
            [
                "look: after 6 blocks 0 of 5 comparisons are open; every comparison that blocks decide is decided or "
                "known closely enough"
            ],
        ),
        (RunEnded(Path("/r/tiny/1"), [RECORD]), ["1 trial: 1 valid, 0 suspect, 0 invalid", "done: /r/tiny/1"]),
    ],
)
def test_a_log_has_a_line_for_each_block_and_for_each_accident(
    event: Event, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines_of(event) == lines
    with Progress() as progress:
        progress(event)
    assert capsys.readouterr().err.splitlines() == [f"vmtoll: {line}" for line in lines]


def test_the_summary_has_a_line_for_each_code_with_the_figure_farthest_from_its_limit() -> None:
    first = replace(RECORD, loaded_s=1.3, fixed_cost_s=1.7)
    said = list(summary([first, SLOW, STOLEN, SLOWER, LOST]))
    codes = [Code.RATE_NOT_REACHED, Code.HOST_LOST, Code.STEAL]
    assert [line.split(": ")[1] for line in said if line.startswith("finding: ")] == codes
    _, display = on_a_terminal(STEP, TrialEnded(LOST, 2, 6, 40.0, again=True), LookEnded(LOOK, 10, None))
    step, counts = (line.rstrip() for line in display.splitlines()[1:])
    _, ratios = on_a_terminal(CONNECTING, *(TrialEnded(record, 1, 6, 40.0) for record in FIVE_SHARES))
    so_far = ratios.splitlines()[-1].rstrip()
    assert_snapshot(SNAPSHOT, {
        "While it goes on": {"step": step, "counts": counts, "ratios": so_far}, "Of all trials": {"the summary": said},
    })  # fmt: skip


def test_the_summary_names_three_environments_and_shortens_what_a_program_printed() -> None:
    environments = ["kvm-2009", "kvm-default", "kvm-high", "kvm-pages", "metal"]
    records = [
        replace(RECORD, order=order, arm=Arm(name), findings=(Finding(Code.TOOL_FAILED, detail="no\nroute " * 99),))
        for order, name in enumerate(environments, start=1)
    ]
    (_, line) = summary(records)
    assert "(kvm-2009 1, kvm-default 1, kvm-high 1, 2 more " in line
    assert "route no route" in line
    assert line.endswith("…")
    assert len(line) < 320


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        (STEP, []),
        (replace(STEP, phase=Phase.MEASURING, tool="oha", role=Role.CROSSCHECK), []),
        (replace(STEP, phase=Phase.NEIGHBOUR, tool="vegeta", rate_rps=300.4), []),
        (
            MachineStep("guest", Absence.LOST, 300.0, "the agent ended"),
            ["machine: guest is gone (the agent ended); bringing it back, or waiting up to 300 s for it"],
        ),
        (
            replace(STEP, phase=Phase.CAPACITY, tool="h2load"),
            ["capacity: nginx on kvm-default#2: measuring the capacity with h2load"],
        ),
        (replace(STEP, phase=Phase.CAPACITY, tool="h2load", attempt=2), []),
    ],
)
def test_of_the_steps_a_log_has_waits_and_first_capacities(
    step: TrialStep | MachineStep, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines_of(step) == lines
    with Progress() as progress:
        progress(step)
    assert capsys.readouterr().err.splitlines() == [f"vmtoll: {line}" for line in lines]


def on_a_terminal(*events: Event) -> tuple[str, str]:
    """What stays on a terminal above the display when these events came, and the display's last state."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Progress(console) as progress:
        for event in events:
            progress(event)
        page = Console(file=io.StringIO(), width=100)
        page.print(progress.display)
    kept = [
        line for line in re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", screen.getvalue()).splitlines() if "vmtoll: " in line
    ]
    return "\n".join(kept), page.file.getvalue()  # type: ignore[attr-defined]


def test_on_a_terminal_the_display_shows_block_bar_step_and_counts() -> None:
    step = replace(STEP, number=3, phase=Phase.MEASURING, tool="oha")
    ended = TrialEnded(RECORD, 1, 6, 50.0), TrialEnded(SLOW, 2, 6, 40.0)
    kept, display = on_a_terminal(CONNECTING, *ended, step, BLOCK)
    assert kept == ""
    bar, now, counts = display.splitlines()
    assert bar.split()[:4] == ["block", "1", "of", "3"]
    assert "2/6 trials 40 s" in bar
    assert now.rstrip().startswith("nginx on kvm-default#2: oha ")
    assert counts.rstrip() == "1 valid, 1 suspect, 0 invalid"


def test_on_a_terminal_accidents_looks_and_the_summary_stay_above_the_display() -> None:
    lost = TrialEnded(LOST, 2, 6, 40.0, again=True)
    kept, display = on_a_terminal(STEP, lost, LookEnded(LOOK, 10, None), RunEnded(Path("/r/tiny/1"), [RECORD]))
    assert [line.split(":")[1].strip() for line in kept.splitlines()] == ["trial 2 of 6", "look", "1 trial", "done"]
    assert "1 invalid; 2 of 5 " in display


GUEST = Arm("kvm-default")


def tail_of(block: int, arm: Arm, tail_us: float, requests: int = 2000) -> TrialRecord:
    measured = Measurement(role=Role.PRIMARY, tool="vegeta", requests=requests, response_time=Times(p99_us=tail_us))
    return replace(RECORD, block=block, arm=arm, measurements=(measured,))


def test_on_a_terminal_the_ratios_so_far_are_shown_and_called_untested() -> None:
    """Geometric means over the blocks that have both sides: 2 and 8 times metal's tail; the last attempt counts."""
    records = [
        tail_of(1, BASELINE, 300.0), tail_of(1, GUEST, 600.0), tail_of(2, GUEST, 200.0), tail_of(2, BASELINE, 100.0),
        tail_of(2, GUEST, 800.0), tail_of(2, SPEC.arm, 900.0), tail_of(3, GUEST, 900.0),
        tail_of(4, BASELINE, 100.0), tail_of(4, GUEST, 500.0, requests=150),
    ]  # fmt: skip
    said = "so far, untested: nginx, site-rate at 300/s, on kvm-default: p99 4 × metal"
    lost = replace(tail_of(2, GUEST, 800.0), findings=(Finding(Code.FINGERPRINT),))
    for more, text in (([], said), ([lost], said.replace("4 ×", "2 ×"))):
        _, display = on_a_terminal(CONNECTING, *(TrialEnded(record, 1, 6, 40.0) for record in [*records, *more]))
        assert display.splitlines()[-1].rstrip() == text


FIVE_SHARES = [
    replace(tail_of(1, arm, us), scenario=replace(SPEC.scenario, load=Load(LoadKind.SHARE, value / 10)))
    for value in range(1, 6)
    for arm, us in ((BASELINE, 9.0), (GUEST, 999.0))
]


def test_on_a_terminal_the_first_ratios_stand_for_all() -> None:
    _, display = on_a_terminal(CONNECTING, *(TrialEnded(record, 1, 6, 40.0) for record in FIVE_SHARES))
    assert "site-rate at 10%, on kvm-default: p99 111 × metal; nginx" in display.splitlines()[-1]


@pytest.mark.parametrize(
    "step",
    [*(replace(STEP, phase=each, tool="siege") for each in Phase), *(MachineStep("guest", each) for each in Absence)],
)
def test_every_step_has_words(step: TrialStep | MachineStep) -> None:
    _, display = on_a_terminal(step)
    assert display.splitlines()[1].strip()
