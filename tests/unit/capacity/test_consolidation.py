"""Guests that share one host: what the analysis finds is what the synthetic run was made of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.synthetic_run import SWEEP, Row, Truth, make_run, rate_load
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.capacity.consolidation import Consolidation, consolidations
from vmtoll.capacity.estimate import ByEnd, End
from vmtoll.capacity.objective import Demand, Slo
from vmtoll.capacity.planner import Assumption, assess_capacity, default_slo
from vmtoll.capacity.rate_sweep import rate_sweeps
from vmtoll.model.trial import Accelerator
from vmtoll.report.capacity import (
    consolidation_text,
    lines,
    section,
    sentences,
    sharing_and_scaling_sentences,
    slo_text,
)
from vmtoll.report.charts import draw_all
from vmtoll.report.html import render, write_report
from vmtoll.report.plot import Chart

pytestmark = pytest.mark.slow

RATES, GUESTS = (200, 400, 800), (1, 2, 4)
SLO = Slo(50.0)
# Of a single guest; each further one adds so much, and from that rate on the p99 breaks.
P99_MS, CPU_SHARE = 10.0, 0.25
BREAKS_RPS = {1: 10_000, 2: 800, 4: 400}


def consolidated(row: Row) -> list[Row]:
    """p99 of 10 ms a guest, and 200 ms beyond the number that a host bears; a quarter of a CPU for each guest."""
    guests = row["load"].guests or 1
    is_guest = row["arm"].environment == "kvm-default"
    here = guests if is_guest else 1
    noise = row["response_time_p50_us"] / np.median([row["response_time_p50_us"]])
    p99_ms = P99_MS * here if row["offered_rps"] < BREAKS_RPS[here] else 200.0
    changed = row | {"guests": here, "response_time_p99_us": 1000 * p99_ms * noise * (1 + 0.001 * row["block"])}
    if is_guest:
        changed["host_cpu_s"] = CPU_SHARE * guests * row["duration_s"] * (1 + 0.001 * row["block"])
    return [changed]


def made(folder: Path, counts: tuple[int, ...] = GUESTS, **keys: Any) -> Run:
    loads = tuple(rate_load(rps, guests=count) for count in counts for rps in RATES)
    known: dict[str, Any] = {"change": consolidated, "open_capacity_rps": 50_000.0, **keys}
    return load_run(make_run(folder, Truth({"nginx": 0.95}, aa=False, loads=loads, **known)))


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("guests"))


def of(run: Run, environment: str, slo: Slo = SLO) -> Consolidation:
    (found,) = [each for each in consolidations(rate_sweeps(run), slo) if each.environment == environment]
    return found


ALONE = ("metal", "container", "tuned")


def test_a_container_or_a_change_of_metal_is_one_machine(tmp_path: Path) -> None:
    """Whatever the number of guests: it is no environment whose machines share a host."""
    run = made(
        tmp_path, guests=("container", "tuned", "kvm-default"), changes={"tuned": {"of": "metal", "apply": "true"}}
    )
    said = list(sharing_and_scaling_sentences(assess_capacity(run, SLO)))
    assert [text for text in said if "guests per host" in text and "kvm-default" not in text] == []
    for environment in ALONE:
        assert consolidation_text(of(run, environment)).startswith("carries ")
        assert all(shared.host_cpus[1] is not None for shared in of(run, environment).rates)
    drawn = chart(run)
    assert "On metal and container and tuned one machine has the whole load" in drawn.caption


def test_guests_alone_are_not_compared_with_a_machine_that_is_not_there(tmp_path: Path) -> None:
    drawn = chart(made(tmp_path, metal=False))
    assert "metal" not in (drawn.caption + drawn.alt).lower()


def chart(run: Run) -> Chart:
    ((_, drawn),) = draw_all(run, analyse(run), ["consolidation"])
    return drawn


def most(run: Run, slo: Slo = SLO) -> list[tuple[int, ...]]:
    """The numbers of guests that are shown to meet the objective, at each rate."""
    return [shared.guests.low for shared in of(run, "kvm-default", slo).rates]


def test_each_number_of_guests_has_a_separate_sweep(guests: Run) -> None:
    sweeps = [sweep for sweep in rate_sweeps(guests) if sweep.arm.environment == "kvm-default"]
    assert [(sweep.guests, len(sweep.steps), sweep.is_alone) for sweep in sweeps] == [
        (1, 3, True), (2, 3, False), (4, 3, False),
    ]  # fmt: skip


def test_capacity_of_several_guests(guests: Run) -> None:
    metal, guest = of(guests, "metal"), of(guests, "kvm-default")
    assert {level.guests: level.carries_rps.low for level in guest.levels} == {1: 800, 2: 400, 4: 200}
    assert guest.levels[0].open_ends == tuple(End)
    assert guest.levels[2].open_ends == ()
    assert [level.carries_rps.low for level in metal.levels] == [800] * 3, "the whole load on one host"
    for count in GUESTS:
        p99_us, busy = guest.rates[0].p99_us[count], guest.rates[0].host_cpus[count]
        assert p99_us is not None
        assert p99_us.low <= 1000 * P99_MS * count * 1.0035 <= p99_us.high
        assert busy is not None
        assert busy.low <= CPU_SHARE * count * 1.0035 <= busy.high


def test_capacity_is_that_of_one_guest_alone(guests: Run) -> None:
    carried = {result.environment: result.carries_rps.low for result in assess_capacity(guests, SLO).results}
    assert carried == {"metal": 800, "kvm-default": 800}


def test_guests_per_host_are_those_of_the_objective_asked_for(guests: Run) -> None:
    found = of(guests, "kvm-default")
    assert (found.server, found.workload) == ("nginx", SWEEP)
    assert [(shared.rate_rps, shared.guests) for shared in found.rates] == [
        (200, ByEnd((1, 2, 4), (1, 2, 4), (1, 2, 4))),
        (400, ByEnd((1, 2), (1, 2), (1, 2))),
        (800, ByEnd((1,), (1,), (1,))),
    ]
    assert most(guests, Slo(1.5 * P99_MS)) == [(1,), (1,), (1,)]
    assert most(guests, Slo(P99_MS / 2)) == [(), (), ()]


@pytest.mark.usefixtures("without_charts")
def test_the_command_and_the_report_give_guests_per_host(guests: Run) -> None:
    planning = assess_capacity(guests, SLO, Demand(800))
    (said,) = sharing_and_scaling_sentences(planning)
    assert said in "\n".join(lines(planning)).splitlines()
    assert default_slo(guests) == SLO
    assert said in render(guests, analyse(guests))


@pytest.mark.usefixtures("without_charts")
def test_without_a_guest_alone_only_the_number_of_guests_follows(tmp_path: Path) -> None:
    run = made(tmp_path, (2, 4), accelerator=Accelerator.TCG)
    planning = assess_capacity(run, SLO, Demand(800))
    assert (planning.results, planning.assumptions) == ((), (Assumption.EVEN_ARRIVALS,))
    assert of(run, "kvm-default").accelerator is Accelerator.TCG
    assert most(run) == [(2, 4), (2,), ()]
    first, last, _assumed = lines(planning)
    assert [first] == list(sentences(planning))
    (said,) = sharing_and_scaling_sentences(planning)
    assert last == f"\n{said}"
    content = section(run)
    assert content is not None
    assert (content["rows"], content["more"]) == ([], [said])
    assert said in render(run, analyse(run))


def test_a_load_may_be_too_much_for_a_few_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BREAKS_RPS, 1, 300)
    run = made(tmp_path)
    assert most(run) == [(1, 2, 4), (2,), ()]
    monkeypatch.setitem(BREAKS_RPS, 4, 800)
    wider = made(tmp_path / "wider")
    assert most(wider) == [(1, 2, 4), (2, 4), ()]
    assert consolidation_text(of(wider, "kvm-default")) in chart(wider).alt


def test_a_single_block_gives_no_number_of_guests(tmp_path: Path) -> None:
    run = made(tmp_path, blocks=1)
    assert of(run, "kvm-default").rates[1].guests == ByEnd((), (1, 2), (1, 2, 4))


def test_the_chart_of_guests_has_a_caption(guests: Run) -> None:
    drawn = chart(guests)
    for environment in ("metal", "kvm-default"):
        said = f"{environment}: {consolidation_text(of(guests, environment))}."
        assert said.removesuffix(".") in drawn.alt and said.removesuffix(".") in drawn.caption
    assert slo_text(SLO) in drawn.caption


def test_the_report_of_it_can_be_written(guests: Run) -> None:
    assert chart(guests).title in write_report(guests, analyse(guests)).read_text(encoding="utf-8")
