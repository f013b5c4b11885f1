"""Guests beside each other, and a neighbour's load: what the analysis finds is what the synthetic run was made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import Row, Truth, make_run

from analysis.capacity import capacity
from analysis.capacity.density import densities, guests_per_host, host_cpus
from analysis.capacity.slo import Demand, Slo
from analysis.capacity.words import lines
from analysis.charts import draw_all
from analysis.doses import curves_of
from analysis.load import Run, load_order, load_run, load_words
from analysis.panels import ladders, single_loads
from analysis.places import alone, dose_of, guests_of, place_of, place_words
from analysis.plot import Chart
from analysis.report import render, write_report
from analysis.verdict import verdict_of

RATES, GUESTS, DOSES = (200, 400, 800), (1, 2, 4), (0.0, 0.5, 1.0)
SLO = Slo(50.0)
# Of a single guest; each further one adds so much, and from that rate on the p99 breaks.
P99_MS, CPU_SHARE = 10.0, 0.25
BREAKS_RPS = {1: 10_000, 2: 800, 4: 400}
# The neighbour at all it can bear takes half of the throughput, and makes the tail three times as long.
TAKEN, LONGER = 0.5, 3.0


def consolidated(row: Row) -> list[Row]:
    """p99 of 10 ms a guest, and beyond what so many bear together 200 ms; a quarter of a CPU for each guest."""
    guests = guests_of(place_of(row["offered_load"])) or 1
    here = guests if row["environment"] == "kvm-default" else 1
    noise = row["response_time_p50_us"] / np.median([row["response_time_p50_us"]])
    p99_ms = P99_MS * here if row["offered_rps"] < BREAKS_RPS[here] else 200.0
    changed = row | {"guests": here, "response_time_p99_us": 1000 * p99_ms * noise * (1 + 0.001 * row["block"])}
    if row["environment"] == "kvm-default":
        changed["host_cpu_s"] = CPU_SHARE * guests * row["duration_s"] * (1 + 0.001 * row["block"])
    return [changed]


def disturbed(row: Row) -> list[Row]:
    """Throughput falls, and the tail grows, linearly with the dose; metal has no neighbour."""
    dose = dose_of(place_of(row["offered_load"])) or 0.0
    if row["environment"] != "kvm-default":
        return [row]
    slower, longer = 1 - (1 - TAKEN) * dose, 1 + (LONGER - 1) * dose
    changed = row | {"neighbour_rps": 900.0 * dose, "throughput_rps": row["throughput_rps"] * slower}
    return [changed | {"service_time_p99_us": row["service_time_p99_us"] * longer}]


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Run:
    loads = tuple(f"rate:{rate} guests:{count}" for count in GUESTS for rate in RATES)
    truth = Truth({"nginx": 0.95}, aa=False, loads=loads, change=consolidated, open_capacity_rps=50_000.0)
    return load_run(make_run(tmp_path_factory.mktemp("guests"), truth))


@pytest.fixture(scope="module")
def doses(tmp_path_factory: pytest.TempPathFactory) -> Run:
    loads = tuple(f"closed:10 neighbour-share:{dose:g}" for dose in DOSES)
    return load_run(
        make_run(tmp_path_factory.mktemp("doses"), Truth({"nginx": 0.95}, aa=False, loads=loads, change=disturbed))
    )


def chart(run: Run, name: str) -> Chart:
    [found] = [one for key, one in draw_all(run, verdict_of(run), [name]) if key.startswith(name)]
    return found


def test_a_load_says_where_it_went_in_words_and_in_order() -> None:
    said = "rate:300 guests:2 neighbour-share:0.5"
    assert (place_of(said), guests_of(place_of(said)), dose_of(place_of(said))) == (said[9:], 2, 0.5)
    assert load_words(said) == "300 req/s, 2 guests, neighbour at 50% of capacity"
    assert place_words("guests:1") == "1 guest"
    assert load_words("closed:10 neighbour-rate:1200") == "10 users, neighbour at 1,200 req/s"
    assert [alone(place) for place in ("", "guests:1", "neighbour-share:0", "guests:2", "neighbour-rate:1")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    rising = [
        "closed:10",
        "rate:20",
        "rate:300 guests:1",
        "rate:300 guests:2",
        "rate:300 guests:10",
        "rate:400 guests:1",
    ]
    assert sorted(rising[3:] + rising[:3], key=load_order) == rising


def test_each_number_of_guests_has_a_ladder_of_its_own(guests: Run) -> None:
    assert [(group.place, len(group.loads)) for group in ladders(guests)] == [(f"guests:{n}", 3) for n in GUESTS]
    assert [g.loads[0] for g in single_loads(guests)] == [f"rate:{r} guests:{n}" for n in (1, 4) for r in (200, 800)]


def test_what_so_many_guests_carry_together_is_found(guests: Run) -> None:
    found = {density.environment: density for density in densities(guests, SLO)}
    assert [level.guests for level in found["kvm-default"].levels] == list(GUESTS)
    carried = {level.guests: level.carried for level in found["kvm-default"].levels}
    assert {n: one.rates["low"] for n, one in carried.items()} == {1: 800, 2: 400, 4: 200}
    assert carried[1].open_end and not carried[4].open_end
    assert [level.carried.rates["low"] for level in found["metal"].levels] == [800] * 3, "the whole load on one host"
    most = {rate: found["kvm-default"].most(SLO, rate, "low") for rate in RATES}
    assert most == {200: 4, 400: 2, 800: 1}
    for level in found["kvm-default"].levels:
        rung = level.at(200)
        assert rung is not None and rung.p99_us is not None
        assert rung.p99_us.low <= 1000 * P99_MS * level.guests * 1.0035 <= rung.p99_us.high
        busy = host_cpus(rung, "kvm-default")
        assert busy is not None
        assert busy.low <= CPU_SHARE * level.guests * 1.0035 <= busy.high


def test_capacity_is_that_of_one_guest_alone(guests: Run) -> None:
    results = capacity(guests, SLO)["results"]
    assert [(result["environment"], result["one"]["low"]) for result in results] == [
        ("metal", 800),
        ("kvm-default", 800),
    ]


def test_guests_per_host_are_those_of_the_objective_asked_for(guests: Run) -> None:
    (found,) = capacity(guests, SLO)["guests_per_host"]
    assert (found["server"], found["environment"], found["measured"]) == ("nginx", "kvm-default", list(GUESTS))
    assert found["by_rate"] == [
        {"rate_rps": 200.0, "low": 4, "mid": 4, "high": 4, "fewest": None, "at_least": True},
        {"rate_rps": 400.0, "low": 2, "mid": 2, "high": 2, "fewest": None, "at_least": False},
        {"rate_rps": 800.0, "low": 1, "mid": 1, "high": 1, "fewest": None, "at_least": False},
    ]
    said = "at least 4 at 200/s, 2 at 400/s, 1 at 800/s (the load of all of them together)"
    assert found["text"] == f"guests per host at p99 ≤ 50 ms, 99.9% available: {said}"
    sooner, never = (guests_per_host(guests, Slo(p99_ms))[0]["text"] for p99_ms in (1.5 * P99_MS, P99_MS / 2))
    assert "p99 ≤ 15 ms, 99.9% available: 1 at 200/s, 1 at 400/s, 1 at 800/s (" in sooner
    assert "none at 200/s, none at 400/s, none at 800/s (" in never


def test_guests_per_host_are_said_by_the_command_and_the_report(guests: Run) -> None:
    said = "guests per host at p99 ≤ 50 ms, 99.9% available: at least 4 at 200/s, 2 at 400/s, 1 at 800/s"
    assert f"nginx on kvm-default, ladder: {said}" in "\n".join(lines(capacity(guests, SLO, Demand(800))))
    assert said in render(guests)


def test_where_no_guest_was_alone_only_their_number_is_told(tmp_path: Path) -> None:
    loads = tuple(f"rate:{rate} guests:{count}" for count in (2, 4) for rate in RATES)
    truth = Truth(
        {"nginx": 0.95}, aa=False, loads=loads, change=consolidated, open_capacity_rps=50_000.0, accelerator="tcg"
    )
    run = load_run(make_run(tmp_path, truth))
    found = capacity(run, SLO, Demand(800))
    assert found["results"] == found["assumes"] == []
    first, _, last = lines(found)
    assert first.startswith("no ladder of rates for one machine alone")
    said = "at least 4 at 200/s, 2 at 400/s, none at 800/s"
    assert f"nginx on kvm-default (emulated: shape only), ladder: guests per host at {SLO.words}: {said}" in last
    page = render(run)
    assert said in page
    assert "Capacity of one" not in page


def test_a_load_may_be_too_much_for_a_few_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BREAKS_RPS, 1, 300)
    loads = tuple(f"rate:{rate} guests:{count}" for count in GUESTS for rate in RATES)
    truth = Truth({"nginx": 0.95}, aa=False, loads=loads, change=consolidated, open_capacity_rps=50_000.0)
    run = load_run(make_run(tmp_path, truth))
    monkeypatch.setitem(BREAKS_RPS, 4, 800)
    (found,) = guests_per_host(run, SLO)
    assert ": at least 4 at 200/s, 2 at 400/s, none at 800/s (" in found["text"]
    wider = load_run(make_run(tmp_path / "wider", truth))
    assert ": at least 4 at 200/s, 2 to at least 4 at 400/s, none at 800/s (" in guests_per_host(wider, SLO)[0]["text"]
    assert "800/s meets it on no guest" in chart(wider, "consolidation").alt


def test_of_a_single_block_no_number_of_guests_is_sure(tmp_path: Path) -> None:
    loads = tuple(f"rate:{rate} guests:{count}" for count in GUESTS for rate in RATES)
    truth = Truth({"nginx": 0.95}, blocks=1, aa=False, loads=loads, change=consolidated, open_capacity_rps=50_000.0)
    (found,) = guests_per_host(load_run(make_run(tmp_path, truth)), SLO)
    assert "none at 400/s (by the estimate 2, at best 4), " in found["text"]


def test_the_chart_of_guests_says_what_it_draws(guests: Run) -> None:
    drawn = chart(guests, "consolidation")
    assert drawn.title == "Guests on one host, nginx"
    said = (
        "kvm-default: 1 guest carries at least 800/s, 2 guests together 400/s, 4 guests together 200/s;"
        " 200/s meets it on up to 4 guests; 800/s meets it on up to 1 guest."
    )
    assert said in drawn.alt and said in drawn.caption
    assert "metal: carries at least 800/s. " in drawn.alt
    assert "p99 ≤ 50 ms, 99.9% available" in drawn.caption


def test_a_dose_has_the_effect_that_it_was_given(doses: Run) -> None:
    curves = {curve.environment: curve for curve in curves_of(doses)}
    guest, metal = curves["kvm-default"], curves["metal"]
    assert [dose.dose for dose in guest.doses] == list(DOSES)
    assert [dose.answered_rps for dose in guest.doses] == [0.0, 450.0, 900.0]
    assert [dose.answered_rps for dose in metal.doses] == [None] * 3
    for column, truths in (("throughput_rps", (0.75, 0.5)), ("service_time_p99_us", (2.0, 3.0))):
        for dose, truth in zip(guest.doses[1:], truths, strict=True):
            effect = guest.effect(dose, column)
            assert effect is not None
            assert effect.low <= truth <= effect.high
            assert effect.high / effect.low < 1.05
            chance = metal.effect(metal.doses[-1], column)
            assert chance is not None
            assert chance.low <= 1 <= chance.high
    assert guest.effect(guest.doses[0], "throughput_rps") is None, "none against none"


def test_the_chart_of_doses_says_what_it_draws(doses: Run, guests: Run) -> None:
    drawn = chart(doses, "doses")
    assert drawn.title == "A noisy neighbour: nginx, 10 users"
    assert "who answers 900/s, against an idle one: requests per second ×0.5 [" in drawn.alt
    assert "p99 ×3 [" in drawn.alt
    assert [name for name, _ in draw_all(guests, verdict_of(guests), ["doses", "cold"])] == []


def test_cold_workloads_have_charts_of_their_own(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth({"nginx": 0.5}))
    meta = json.loads((path / "run.json").read_text())
    assert draw_all(load_run(path), {}, ["cold"]) == []
    meta["experiment"]["resolved"] = {"workloads": {"siege-site": {"cold": True}}}
    (path / "run.json").write_text(json.dumps(meta))
    drawn = dict(draw_all(load_run(path), {}, ["cold"]))
    assert [one.title for one in drawn.values()] == [
        "Cold caches: megabytes per second", "Cold caches: half of the files take less",
    ]  # fmt: skip


def test_the_report_of_either_can_be_written(guests: Run, doses: Run) -> None:
    for run, words in ((guests, "Guests on one host"), (doses, "A noisy neighbour")):
        assert words in write_report(run.path).read_text(encoding="utf-8")
