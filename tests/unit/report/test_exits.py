"""Where the time of exits goes: from explained trials to figures, the page, the terminal and JSON."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.page_text import section, words_of
from tests.support.program import vmtoll
from tests.support.records import make_record
from tests.support.snapshots import Sections, assert_snapshot
from tests.support.synthetic_run import Truth, make_run
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.exits import ExplainedExits, explained_exits
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.exits import ExitReason, ExplainedTrial
from vmtoll.model.finding import Code, Finding
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.model.verdict import Estimate
from vmtoll.report import html, words
from vmtoll.runs.folder import EXPLAINED

REQUESTS = 1000
PRICES = [
    {"kind": "cpuid", "ns": 1200.0, "low_ns": 1100.0, "high_ns": 1500.0, "exits": 9000},
    {"kind": "port-process", "ns": 4000.0, "low_ns": 3900.0, "high_ns": 4400.0, "exits": 900},
]
# Reason → exits, µs of CPU each, µs asleep each.
EXITS = {"hlt": (500, 2.0, 2000.0), "msr": (3000, 1.5, 0.0), "io": (1000, 9.0, 1.0)}


def explained(number: int, run: Run, guest: str, *, failed: bool = False) -> ExplainedTrial:
    """The n-th explained trial: its exits take 1% longer each time."""
    trial = make_record(
        arm=Arm(guest), attempt=number,
        measured={"transactions": REQUESTS, "requests": REQUESTS, "host_cpu_us_per_request": 90.0 + number},
        findings=(Finding(Code.TOOL_FAILED),) if failed else (),
    )  # fmt: skip
    trial = replace(trial, accelerator=Accelerator.KVM, scenario=run.scenarios[0])
    slower = 1 + (number - 2) / 100
    exits = tuple(
        ExitReason(reason=name, count=count, time_us=count * (cpu_us * slower + away_us), away_us=count * away_us)
        for name, (count, cpu_us, away_us) in EXITS.items()
    )
    return ExplainedTrial(trial=trial, host="host", exits=exits)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return explained_run(tmp_path_factory.mktemp("exits"), Truth())


def explained_run(parent: Path, truth: Truth, guests: tuple[str, ...] = ("kvm-default",)) -> Run:
    """A run in which each of these guests was explained three times, and once in vain."""
    folder = make_run(parent, truth)
    run = load_run(folder)
    trials = [
        explained(number, run, guest, failed=number > 3) for guest in guests for number in range(1, 5)
    ]  # fmt: skip
    (folder / "exits.jsonl").write_bytes(b"".join(EXPLAINED.line(each) + b"\n" for each in trials))
    (folder / "exit-prices.json").write_text(json.dumps({"host": PRICES}))
    manifest = json.loads((folder / "run.json").read_text())
    manifest["experiment"]["explain"] = "exits"
    (folder / "run.json").write_text(json.dumps(manifest))
    return load_run(folder)


@pytest.fixture
def exits(run: Run) -> ExplainedExits:
    (only,) = explained_exits(run)
    return only


def test_what_a_virtual_cpu_sleeps_is_in_no_sum(exits: ExplainedExits) -> None:
    assert exits.trials == 3, "the invalid one is left out"
    assert exits.per_request.value == pytest.approx(4.5)
    assert exits.us_per_request.value == pytest.approx(3 * 1.5 + 1 * 9 + 0.5 * 2)
    assert [share.reason for share in exits.reasons] == ["io", "msr", "hlt"]
    assert exits.reasons[0].us_per_exit == pytest.approx(9)
    assert exits.reasons[2].away_us.value == pytest.approx(1000)


def test_the_interval_is_over_trials(exits: ExplainedExits) -> None:
    low, high = exits.us_per_request.low, exits.us_per_request.high
    assert low is not None and high is not None
    # Three trials whose figures differ by 1%: t(0.975, 2) · 1% / √3.
    assert high - exits.us_per_request.value == pytest.approx(14.5 * 0.01 * 4.3027 / 3**0.5, rel=1e-3)
    assert exits.us_per_request.value - low == pytest.approx(high - exits.us_per_request.value)


def test_the_trials_that_are_compared_say_what_is_to_be_explained(run: Run, exits: ExplainedExits) -> None:
    """Paired by block, and without the explained trials."""

    def cpu(name: str, column: str) -> list[float]:
        trials = run.trials_of(run.scenarios[0], Arm(name))
        return [value for trial in trials if trial.primary and (value := trial.primary.column(column))]

    guest, metal = cpu("kvm-default", "host_cpu_us_per_request"), cpu("metal", "server_cpu_us_per_request")
    assert exits.more_us is not None and exits.host_cpu_us is not None and exits.traced_cpu_us is not None
    assert exits.more_us.value == pytest.approx(sum(guest) / 6 - sum(metal) / 6)
    assert exits.host_cpu_us.value == pytest.approx(sum(guest) / 6)
    assert exits.traced_cpu_us.value == pytest.approx(92)
    assert exits.at_least_us == pytest.approx(4.5 * 1.2)


def test_the_comparisons_do_not_see_the_explained_trials(run: Run, tmp_path: Path) -> None:
    plain = load_run(make_run(tmp_path, Truth()))
    assert analyse(run).comparisons == analyse(plain).comparisons


ANOTHER_GUEST: dict[str, Any] = {
    "baseline": Arm("kvm-tuned"), "is_baseline_guest": True, "baseline_us_per_request": Estimate(10),
}  # fmt: skip


@pytest.mark.usefixtures("without_charts")
def test_the_words_of_exits(run: Run, exits: ExplainedExits) -> None:
    page = html.render(run, analyse(run))
    some = replace(exits, us_per_request=Estimate(14, 13, 15), more_us=Estimate(19, 18, 20))
    sentences = {
        "some of what the guest needs more": some,
        "all of it": replace(some, us_per_request=Estimate(25)),
        "the guest needs no more": replace(some, more_us=Estimate(-1)),
        "nothing to compare with": replace(some, more_us=None, host_cpu_us=Estimate(93)),
        "more than a container": replace(some, baseline=Arm("container")),
        "more than another guest": replace(some, **ANOTHER_GUEST),
        "less than another guest": replace(some, **ANOTHER_GUEST | {"more_us": Estimate(-5, -6, -4)}),
        "another guest that was not explained": replace(some, **ANOTHER_GUEST | {"baseline_us_per_request": None}),
    }
    sections: Sections = {
        "How much exits explain": {name: words.exits_text(said) for name, said in sentences.items()},
        "On the page": {"its section": words_of(section(page, "exits"))},
        "On the terminal": {"the command": words.exit_lines(exits)},
    }
    assert_snapshot(SNAPSHOTS / "exits.txt", sections)
    assert page.count(words.exits_text(exits)) == 2, "at the top, and in its section"


@pytest.mark.usefixtures("without_charts")
def test_exits_of_a_guest_are_compared_with_those_of_the_baseline(tmp_path: Path) -> None:
    """A baseline that is a guest has exits of its own, and needs no more CPU than itself."""
    guests = ("kvm-default", "kvm-tuned")
    run = explained_run(tmp_path, Truth(metal=False, guests=guests), guests)
    baseline, compared = explained_exits(run)
    assert (baseline.arm, baseline.more_us, compared.baseline) == (Arm("kvm-default"), None, Arm("kvm-default"))
    assert compared.more_us is not None
    assert compared.baseline_us_per_request == baseline.us_per_request
    page = html.render(run, analyse(run))
    assert words.exits_text(compared) in page
    assert "metal" not in words.exits_text(compared) + words.exits_text(baseline)


@pytest.mark.usefixtures("without_charts")
def test_a_run_without_explained_trials_has_no_such_section(tmp_path: Path) -> None:
    plain = load_run(make_run(tmp_path, Truth()))
    assert explained_exits(plain) == ()
    assert 'id="exits"' not in html.render(plain, analyse(plain))


def test_the_command_prints_the_same(run: Run, exits: ExplainedExits, tmp_path: Path) -> None:
    printed = vmtoll("explain", str(run.path))
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.split() == " ".join(words.exit_lines(exits)).split()
    (row,) = json.loads(vmtoll("explain", str(run.path), "--json").stdout)["exits"]
    assert row["us_per_request"]["value"] == pytest.approx(14.5)
    assert row["reasons"][0]["reason"] == "io"
    plain = make_run(tmp_path, Truth())
    refused = vmtoll("explain", str(plain))
    assert refused.returncode == 2
    assert "`explain: exits`; add that" in refused.stderr
