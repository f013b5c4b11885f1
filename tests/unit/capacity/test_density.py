"""How many guests a host carries: simulated hosts with a known knee, and what a run, its page and its command say."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.page_text import section as page_section
from tests.support.page_text import words_of
from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Truth, make_run, rate_load
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.capacity.density import carried_guests, count_of, hosts_for, most_carried
from vmtoll.capacity.estimate import ByEnd, End
from vmtoll.cli import app
from vmtoll.model.density import DensityFigures, HostFigures, TileFigures
from vmtoll.model.finding import Code, Finding
from vmtoll.model.tail import margin_of
from vmtoll.model.trial import Accelerator, Arm, ClientPlace, Scenario, TrialRecord, from_json, to_json
from vmtoll.report import charts, words
from vmtoll.report.density import section
from vmtoll.report.html import render
from vmtoll.report.terminal import rows_of, summary

pytestmark = pytest.mark.slow

BLOCKS, MOST, REQUESTS, RUNS = 8, 6, 400, 60
# One CPU of the host serves all guests, first come, first served, at random: 1 ms of work a request on average.
WORK_MS, RATE_PER_MS, DRIFT = 1.0, 0.14, 0.05


def record(block: int, tiles: list[TileFigures], **keys: Any) -> TrialRecord:
    density = DensityFigures(guests=len(tiles), tiles=tuple(tiles))
    return TrialRecord(
        run_id="r", block=block, order=len(tiles), attempt=1, arm=Arm("kvm-default"), accelerator=Accelerator.KVM,
        scenario=Scenario("nginx", "w", rate_load(100, guests=len(tiles))), client=ClientPlace.REMOTE, clients=1,
        guests=len(tiles), started_at="", density=density, **keys,
    )  # fmt: skip


def tile(number: int, p99_ms: float | None, deadline_ms: float, successful: int = REQUESTS) -> TileFigures:
    return TileFigures(
        guest=f"g{number}", kind="w", deadline_ms=deadline_ms, requests=REQUESTS, successful=successful, p99_ms=p99_ms
    )


def p99s_ms(rng: np.random.Generator, guests: int, slower: float) -> list[float]:
    """The p99 of each guest's clients: a queue for one CPU (Lindley's recursion), every guest with its own arrivals."""
    due = rng.exponential(1 / RATE_PER_MS, size=(guests, REQUESTS)).cumsum(axis=1)
    order = np.argsort(due, axis=None)
    arrivals, work = due.ravel()[order], rng.exponential(WORK_MS * slower, size=guests * REQUESTS)
    done = work.cumsum() + np.maximum.accumulate(arrivals - (work.cumsum() - work))
    waited = np.empty(guests * REQUESTS)
    waited[order] = done - arrivals
    return [float(p99) for p99 in np.quantile(waited.reshape(guests, REQUESTS), 0.99, axis=1)]


def simulated(rng: np.random.Generator, deadline_ms: float) -> ByEnd[int]:
    """The estimate of a run on such a host."""
    slower = np.exp(rng.normal(0, DRIFT, size=BLOCKS))
    counts = [
        count_of(
            guests,
            [
                record(block, [tile(i, p99, deadline_ms) for i, p99 in enumerate(p99s_ms(rng, guests, slower[block]))])
                for block in range(BLOCKS)
            ],
            99.0,
        )
        for guests in range(1, MOST + 1)
    ]
    return most_carried(counts, 99.0)[0]


@pytest.fixture(scope="module")
def typical_ms() -> dict[int, float]:
    """The worst p99 of each number of guests, as the geometric mean of many trials: the simulated host's truth."""
    rng = np.random.default_rng(7)
    slower = np.exp(rng.normal(0, DRIFT, size=600))
    return {
        guests: math.exp(np.mean([math.log(max(p99s_ms(rng, guests, each))) for each in slower]))
        for guests in range(1, MOST + 1)
    }


@pytest.mark.parametrize(("knee", "place"), [(2, 0.5), (4, 0.9), (5, 0.1), (5, 0.5)])
def test_the_interval_holds_the_knee_of_a_simulated_host(typical_ms: dict[int, float], knee: int, place: float) -> None:
    """The deadline lies between what the knee's number of guests shows and what one more does, also close to either."""
    low_ms, high_ms = typical_ms[knee], typical_ms[knee + 1]
    deadline_ms = low_ms * (high_ms / low_ms) ** place
    rng = np.random.default_rng([knee, round(10 * place)])
    answers = [simulated(rng, deadline_ms) for _ in range(RUNS)]
    assert np.mean([answer.low <= knee <= answer.high for answer in answers]) >= 0.93
    assert np.mean([answer.low <= answer.mid <= answer.high for answer in answers]) == 1
    if place == 0.5:
        assert np.mean([abs(answer.mid - knee) <= 1 for answer in answers]) >= 0.93
        assert np.mean([answer.high - answer.low for answer in answers]) <= 2.5


def test_the_worst_guest_counts_and_lost_requests_are_slow() -> None:
    assert margin_of(record(1, [tile(0, 10.0, 50.0), tile(1, 90.0, 100.0)])) == pytest.approx(math.log(0.9))
    assert margin_of(record(1, [tile(0, None, 50.0)])) == pytest.approx(math.log(200))
    timed_out = replace(record(1, []), density=None, findings=(Finding(Code.TIMED_OUT),))
    assert margin_of(timed_out) == pytest.approx(math.log(10)), "far beyond, also where no deadline is known"
    assert margin_of(replace(timed_out, findings=())) is None


def test_too_few_successes_break_the_objective() -> None:
    lost = [record(block, [tile(0, 10.0, 50.0), tile(1, 10.0, 50.0, REQUESTS - 3)]) for block in range(BLOCKS)]
    count = count_of(2, lost, 99.9)
    assert count.kept == 0
    assert most_carried([count], 99.9)[0].high == 0
    assert most_carried([count], 98.0) == (ByEnd(2, 2, 2), (End.LOW, End.MID, End.HIGH))


def test_five_blocks_show_nothing() -> None:
    few = [record(block, [tile(0, 10.0 + block / 100, 50.0)]) for block in range(5)]
    assert most_carried([count_of(1, few, 99.0)], 99.0)[0] == ByEnd(0, 1, 1)


def run_of(folder: Path, knee: float, accelerator: Accelerator = Accelerator.KVM, **keys: Any) -> Run:
    """A synthetic run of one to four guests; `knee`: where the p99 of the worst reaches its deadline of 50 ms."""
    loads = tuple(rate_load(100, guests=guests) for guests in range(1, 5))
    truth = Truth(
        {"nginx": 0.9}, metal=False, aa=False, loads=loads, open_capacity_rps=50_000.0, accelerator=accelerator,
        **keys,
    )  # fmt: skip
    path = make_run(folder, truth)
    manifest = json.loads((path / "run.json").read_text())
    manifest["experiment"] |= {
        "density": {"tiles": [{"workload": "sweep"}, {"idle": True}], "at_most": 4, "availability_pct": 99.0}
    }
    (path / "run.json").write_text(json.dumps(manifest))
    records = [from_json(line) for line in (path / "trials.jsonl").read_bytes().splitlines()]
    (path / "trials.jsonl").write_bytes(b"".join(to_json(_with_density(each, knee)) + b"\n" for each in records))
    return load_run(path)


def _with_density(each: TrialRecord, knee: float) -> TrialRecord:
    guests = each.scenario.load.guests or 1
    p99 = 50.0 * 4 ** (guests - knee) * (1 + each.block / 1000)
    host = HostFigures(
        vcpus=guests, cpus=2, cpu_pct=20.0 * guests, ready_pct=1.5 * guests, guests_mb=300.0 * guests,
        available_mb=4000.0, total_mb=8000.0, ksm=True, merged_mb=12.0,
    )  # fmt: skip
    tiles = tuple(tile(number, p99, 50.0) for number in range(0, guests, 2))
    return replace(each, density=DensityFigures(guests=guests, tiles=tiles, host=host))


def test_the_answer_its_page_and_its_command(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2.5)
    (answer,) = carried_guests(run)
    assert answer.guests == ByEnd(2, 2, 2)
    assert [(count.kept, count.trials) for count in answer.counts] == [(6, 6), (6, 6), (0, 6), (0, 6)]
    assert answer.counts[3].vcpus_per_cpu == 2
    said = words.carried_text(answer)
    analysis = analyse(run)
    page = render(run, analysis)
    assert said in page
    assert 'id="density"' in page
    ((_, chart),) = charts.draw_all(run, analysis, only=["density"])
    assert chart.title in page
    assert said in summary(run, analysis, rows_of(analysis)).plain
    assert hosts_for(9, answer, spare=1) == ByEnd(6, 6, 6)
    result = CliRunner().invoke(app, ["capacity", str(run.path), "--guests", "9"])
    assert result.exit_code == 0, result.output
    assert words.hosts_text(9, answer, 1) in " ".join(result.output.split())
    document = json.loads(CliRunner().invoke(app, ["capacity", str(run.path), "--guests", "9", "--json"]).output)
    assert document["density"][0]["hosts"] == {"low": 6, "mid": 6, "high": 6}
    assert document["density"][0]["guests"] == {"low": 2, "mid": 2, "high": 2}


@pytest.mark.usefixtures("without_charts")
def test_ksm_on_and_off_have_an_answer_each(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2.5, guests=("ksm-on", "ksm-off"))
    answers = {answer.environment: answer for answer in carried_guests(run)}
    assert {name: answer.guests for name, answer in answers.items()} == dict.fromkeys(
        ("ksm-on", "ksm-off"), ByEnd(2, 2, 2)
    )
    said = list(map(words.carried_text, answers.values()))
    assert all(f"The host of {name} " in sentence for name, sentence in zip(answers, said, strict=True))
    analysis = analyse(run)
    page, lines = render(run, analysis), summary(run, analysis, rows_of(analysis)).plain
    assert all(each in page and each in lines for each in said)


@pytest.mark.parametrize(
    ("knee", "guests", "open_ends"), [(0.5, ByEnd(0, 0, 0), ()), (9.0, ByEnd(4, 4, 4), tuple(End))]
)
def test_answers_at_the_ends(tmp_path: Path, knee: float, guests: ByEnd[int], open_ends: tuple[End, ...]) -> None:
    (answer,) = carried_guests(run_of(tmp_path, knee))
    assert (answer.guests, answer.open_ends) == (guests, open_ends)


def test_a_number_whose_trials_all_failed_is_named(tmp_path: Path) -> None:
    """As where the host runs out of memory and loses a guest: more than three did run, and ended so."""
    run = run_of(tmp_path, 9.0)
    lost = [
        replace(each, findings=(Finding(Code.HOST_LOST),), measurements=(), density=None)
        if each.scenario.load.guests == 4 else each
        for each in run.records
    ]  # fmt: skip
    (answer,) = carried_guests(replace(run, records=tuple(lost)))
    assert (answer.guests, answer.failed) == (ByEnd(3, 3, 3), {4: (Code.HOST_LOST,)})
    assert words.carried_text(answer).endswith("carries at least 3 such guests, the most whose trials count.")
    assert any("with 4 guests no trial counts (host-lost)" in note for note in words.density_notes(answer))


def test_an_emulated_guest_gives_no_number_of_hosts(tmp_path: Path) -> None:
    run = run_of(tmp_path, 2.5, Accelerator.TCG)
    (answer,) = carried_guests(run)
    assert hosts_for(9, answer) is None
    assert (answer.accelerator, answer.guests) == (Accelerator.TCG, ByEnd(2, 2, 2))


def test_few_blocks_show_no_number(tmp_path: Path) -> None:
    (answer,) = carried_guests(run_of(tmp_path, 2.5, blocks=4))
    assert answer.guests == ByEnd(0, 2, 2)
    assert hosts_for(9, answer) == ByEnd(None, 6, 6)


@pytest.mark.usefixtures("without_charts")
def test_the_words_of_a_density(tmp_path: Path) -> None:
    runs = {
        "two and a half": run_of(tmp_path / "two", 2.5),
        "none": run_of(tmp_path / "none", 0.5),
        "as many as ran": run_of(tmp_path / "most", 9.0),
        "emulated": run_of(tmp_path / "emulated", 2.5, Accelerator.TCG),
        "four blocks": run_of(tmp_path / "few", 2.5, blocks=4),
    }
    answers = {name: carried_guests(run)[0] for name, run in runs.items()}
    page = render(run := runs["two and a half"], analyse(run))
    sections = {
        "Guests that a host carries": {
            name: [words.carried_text(answer), *words.density_notes(answer), words.hosts_text(9, answer, 1)]
            for name, answer in answers.items()
        },
        "On the page": {"its section": words_of(page_section(page, "density"))},
    }
    assert_snapshot(SNAPSHOTS / "density.txt", sections)


def test_a_run_without_density(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth()))
    assert section(run) is None
    assert carried_guests(run) == []
    for words_given, said in (
        (["--guests", "3"], "in this run no guests had separate loads"),
        (["--guests", "3", "--rate", "2"], "leave out --rate and --p99-ms"),
        (["--rate", "2"], "give --rate and --p99-ms, or --guests"),
    ):
        result = CliRunner().invoke(app, ["capacity", str(run.path), *words_given])
        assert result.exit_code
        assert said in result.output + str(result.exception)
