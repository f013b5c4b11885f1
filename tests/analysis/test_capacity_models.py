"""The Universal Scalability Law and Erlang C against published figures, and the law over a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import Row, Truth, make_run, suspected

from analysis.capacity import Demand, Slo, capacity
from analysis.capacity.erlang import beyond, rate_within, waits
from analysis.capacity.scaling import scaling
from analysis.capacity.usl import fit, over_blocks
from analysis.capacity.words import lines
from analysis.charts import draw_all
from analysis.load import load_run
from analysis.report import render
from workloads.runner.experiment import load
from workloads.runner.registry import Registry

# The two data sets of R's package usl, from Gunther, Guerrilla Capacity Planning, 2007: a ray tracer over
# processors (BRL-CAD on an SGI Origin 2000), scripts per hour over users (SPEC SDM91 on a SPARCcenter 2000).
RAYTRACER = {1: 20, 4: 78, 8: 130, 12: 170, 16: 190, 20: 200, 24: 210, 28: 230, 32: 260, 48: 280, 64: 310}
SPECSDM91 = {1: 64.9, 18: 995.9, 36: 1652.4, 72: 1853.2, 108: 1828.9, 144: 1775.0, 216: 1702.2}


def test_raytracer_as_published() -> None:
    """The vignette of usl 3: alpha 0.057771, beta 0, gamma 21.848843, residual 9.34, limit 378."""
    law = fit(list(RAYTRACER), list(RAYTRACER.values()))
    assert law.gamma == pytest.approx(21.848843, rel=1e-6)
    assert law.alpha == pytest.approx(0.057771, abs=5e-7)
    assert law.beta == 0
    assert law.residual == pytest.approx(9.34, abs=0.005)
    assert law.limit == pytest.approx(378, abs=0.5)
    assert law.peak is None
    assert law.errors[2] is None


def test_specsdm91_as_published() -> None:
    """The README of usl 3: alpha 0.0277285 (0.0091217), beta 0.0001044 (0.0000199), gamma 89.9952330
    (14.2134894), residual 82.8; its manual: limit "about 3245"; its vignette: peak at 96.5.
    """
    law = fit(list(SPECSDM91), list(SPECSDM91.values()))
    assert law.gamma == pytest.approx(89.9952330, rel=1e-5)
    assert law.alpha == pytest.approx(0.0277285, abs=5e-7)
    assert law.beta == pytest.approx(0.0001044, abs=5e-8)
    assert law.errors == pytest.approx((14.2134894, 0.0091217, 0.0000199), rel=2e-3)
    assert law.residual == pytest.approx(82.8, abs=0.05)
    assert law.limit == pytest.approx(3245, abs=1)
    assert law.peak == pytest.approx(96.5, abs=0.05)
    assert law.peak_is_measured
    assert law.throughput(law.peak) == max(law.throughput(n) for n in (*SPECSDM91, law.peak))


def test_the_law_recovers_its_own_coefficients() -> None:
    """tests/coef.R of the package: alpha and beta 0.02, gamma 1."""
    law = fit([1, 2, 4, 6, 8, 10], [1, 1.8868, 3.0769, 3.5294, 3.5398, 3.3557])
    assert (law.gamma, law.alpha, law.beta) == pytest.approx((1, 0.02, 0.02), rel=1e-3)


@pytest.mark.parametrize("levels", [[1, 2, 3, 4, 5], [1, 1, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]])
def test_too_little_is_refused(levels: list[int]) -> None:
    with pytest.raises(ValueError, match="level"):
        fit(levels, [1.0] * len(levels))


def test_erlang_c_as_published() -> None:
    """A single server waits when it is busy (M/M/1); two thirds busy, three servers: 4/9. The worked example of call
    centres: 200 calls of 180 s per hour; 13 agents take 79.6% of them within 20 s, 14 agents 88.8%.
    """
    assert waits(0.7, 1) == pytest.approx(0.7)
    assert waits(2, 3) == pytest.approx(4 / 9)
    for agents, share in ((13, 0.7956), (14, 0.888)):
        within_20_s = 1 - waits(10, agents) * math.exp(-(agents - 10) * 20 / 180)
        assert within_20_s == pytest.approx(share, abs=5e-4)
    assert waits(5, 5) == waits(9, 5) == 1


@pytest.mark.parametrize(("erlangs", "servers"), [(0.0, 1), (0.5, 1), (2.5, 4), (90, 100), (190, 200)])
def test_erlang_c_is_its_sum(erlangs: float, servers: int) -> None:
    """The textbook's sum, by logarithms, for what does not overflow."""
    terms = [math.exp(k * math.log(erlangs) - math.lgamma(k + 1)) if erlangs else float(k == 0) for k in range(servers)]
    last = math.exp(servers * math.log(erlangs) - math.lgamma(servers + 1)) if erlangs else 0.0
    last /= 1 - erlangs / servers
    assert waits(erlangs, servers) == pytest.approx(last / (sum(terms) + last), rel=1e-9)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_the_time_in_the_queue_is_that_of_a_simulation(servers: int) -> None:
    rng = np.random.default_rng(servers)
    count, work_s, rate = 100_000, 1.0, 0.6 * servers
    arrivals, works = np.cumsum(rng.exponential(1 / rate, count)), rng.exponential(work_s, count)
    free, stays = np.zeros(servers), np.empty(count)
    for i in range(count):
        first = int(free.argmin())
        free[first] = max(free[first], arrivals[i]) + works[i]
        stays[i] = free[first] - arrivals[i]
    for seconds in (0.5, 1.0, 3.0):
        assert beyond(seconds, rate, work_s, servers) == pytest.approx(float((stays > seconds).mean()), rel=0.1)


def test_the_rate_within_a_limit() -> None:
    """M/M/1: the time in the system is exponential, so 1% exceed ln(100)/(μ − λ)."""
    assert rate_within(0.005, 0.01, 1e-4, 1) == pytest.approx(1e4 - math.log(100) / 0.005)
    assert rate_within(0.005, 0.01, 0.002, 1) == 0  # even alone, 8% take longer
    assert beyond(0.005, rate_within(0.005, 0.01, 1e-3, 3), 1e-3, 3) == pytest.approx(0.01)


USERS = (1, 2, 5, 10, 20, 50, 100)


def lawful(row: Row) -> list[Row]:
    users = int(row["offered_load"].partition(":")[2])
    return [row | {"throughput_rps": 1000 * users / (1 + 0.05 * (users - 1) + 0.001 * users * (users - 1))}]


def over(found: list[dict[str, Any]], environment: str) -> dict[str, Any]:
    (law,) = [one for one in found if one["environment"] == environment]
    return law


def test_the_law_over_users_of_a_run(tmp_path: Path) -> None:
    truth = Truth(loads=tuple(f"closed:{n}" for n in USERS), change=lawful)
    found = scaling(load_run(make_run(tmp_path, truth)))
    metal = over(found, "metal")
    assert (metal["alpha"], metal["beta"], metal["over"]) == (pytest.approx(0.05), pytest.approx(0.001), "users")
    assert metal["text"] == "contention σ 5%, coherency κ 0.1%; peak of 9,038/s at 31 users"
    short = Truth(loads=tuple(f"closed:{n}" for n in (1, 2, 5, 10, 15, 20)), change=lawful)
    assert over(scaling(load_run(make_run(tmp_path / "b", short))), "metal")["text"].endswith(
        "no peak up to 20 users; the law puts it beyond what was measured"
    )
    few = Truth(loads=tuple(f"closed:{n}" for n in USERS[:5]), change=lawful)
    assert scaling(load_run(make_run(tmp_path / "c", few))) == []


def drifting(row: Row) -> list[Row]:
    """The same law, with the drift of its block and the noise of the trial."""
    (lawful_row,) = lawful(row)
    return [row | {"throughput_rps": lawful_row["throughput_rps"] * row["throughput_rps"] / 8000}]


def test_the_intervals_of_a_run_hold_the_truth(tmp_path: Path) -> None:
    truth = Truth(loads=tuple(f"closed:{n}" for n in USERS), change=drifting, aa=False)
    for law in scaling(load_run(make_run(tmp_path, truth))):
        for coefficient, known in (("alpha", 0.05), ("beta", 0.001)):
            found = law["intervals"][coefficient]
            assert found["low"] <= known <= found["high"]
            assert found["high"] - found["low"] < 0.3 * known


def test_the_intervals_hold_the_truth() -> None:
    """Of 100 runs of six blocks, whose trials share the drift of their block, about 95 should."""
    rng, held = np.random.default_rng(7), np.zeros(2)
    levels, blocks = np.tile(np.array(USERS, dtype=float), 6), np.repeat(np.arange(6.0), len(USERS))
    straight = 1000 * levels / (1 + 0.05 * (levels - 1) + 0.001 * levels * (levels - 1))
    for _ in range(100):
        noise = np.repeat(rng.normal(0, 0.05, 6), len(USERS)) + rng.normal(0, 0.02, levels.size)
        found = over_blocks(levels, straight * np.exp(noise), blocks)
        pairs = zip(found, (0.05, 0.001), strict=True)
        held += [one is not None and one.low <= known <= one.high for one, known in pairs]
    assert (held >= 88).all()


def test_what_has_no_interval() -> None:
    levels, blocks = np.tile(np.array(USERS, dtype=float), 3), np.repeat(np.arange(3.0), len(USERS))
    straight = 1000 * levels / (1 + 0.05 * (levels - 1) + 0.001 * levels * (levels - 1))
    assert None not in over_blocks(levels, straight, blocks)
    two = blocks < 2
    assert over_blocks(levels[two], straight[two], blocks[two]) == (None, None), "two blocks"
    contention, coherency = over_blocks(levels, 1000 * levels / (1 + 0.05 * (levels - 1)), blocks)
    assert contention is not None
    assert coherency is None, "on its bound"
    lone = (levels < 50) | (blocks == 0)
    assert over_blocks(levels[lone], straight[lone], blocks[lone]) == (None, None), "a block holds two levels alone"


def test_the_experiment_scaling_shows_its_law_in_the_report_and_by_the_command(tmp_path: Path) -> None:
    """Rows as its workloads give them, with the keys that the runner writes down."""
    resolved = load(Registry().experiment_file("scaling"), scale="full")
    level = {workload.users: name for name, workload in resolved.workloads.items()}

    def change(row: Row) -> list[Row]:
        users = int(row["offered_load"].partition(":")[2])
        return [one | {"workload": level[users], "tool": "h2load", "users": users} for one in lawful(row)]

    path = make_run(tmp_path, Truth(loads=tuple(f"closed:{n}" for n in USERS), change=change, accelerator="tcg"))
    meta = json.loads((path / "run.json").read_text())
    meta["experiment"]["resolved"] = {
        "workloads": {name: workload.model_dump(mode="json") for name, workload in resolved.workloads.items()}
    }
    (path / "run.json").write_text(json.dumps(meta))
    run, law = load_run(path), "contention σ 5%, coherency κ 0.1%; peak of 9,038/s at 31 users"
    page = render(run)
    for side in ("metal", "kvm-default (emulated: shape only)"):
        assert f"scaling of nginx on {side} over users (Universal Scalability Law): {law}." in page
    assert "Capacity of one" not in page
    (drawn,) = [chart for _, chart in draw_all(run, {}, ["scaling"])]
    assert drawn.title == "Throughput over users (h2load)"
    assert drawn.alt == f"nginx on metal: {law}; nginx on kvm-default (emulated): {law}."
    found = capacity(run, Slo(50), Demand(1000))
    assert found["results"] == []
    first, _, *laws = lines(found)
    assert first.startswith("no ladder of rates for one machine alone")
    assert [one.rpartition(": ")[2] for one in laws] == [law, law]


def test_the_law_over_the_cpus_of_guests(tmp_path: Path) -> None:
    """Guests that differ in their CPUs are levels of one sweep; metal is none of them."""
    cpus = (1, 2, 3, 4, 6, 8)

    def change(row: Row) -> list[Row]:
        if not row["environment"].startswith("kvm-"):
            return [row]
        n = int(row["environment"].partition("-")[2])
        return [row | {"throughput_rps": 2000 * n / (1 + 0.1 * (n - 1))}]

    path = make_run(tmp_path, Truth(guests=tuple(f"kvm-{n}" for n in cpus), change=change))
    hosts = json.loads((path / "hosts.json").read_text())
    for n in cpus:
        hosts[f"kvm-{n}"]["cpus_allowed"] = n
    (path / "hosts.json").write_text(json.dumps(hosts))
    (law,) = scaling(load_run(path))
    assert (law["over"], law["environment"], law["largest"]) == ("cpus", "guests", 8)
    assert (law["alpha"], law["beta"]) == pytest.approx((0.1, 0), abs=1e-6)
    assert law["limit"] == pytest.approx(20_000, rel=1e-4)
    assert law["text"] == "contention σ 10%, coherency κ 0%; no peak"
    (drawn,) = [chart for _, chart in draw_all(load_run(path), {}, ["scaling"])]
    assert drawn.title == "Throughput over the CPUs of guests (siege)"
    assert drawn.alt == f"nginx on guests: {law['text']}."


def test_what_the_client_limits_is_no_level(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        (row,) = lawful(row)
        return [
            suspected(row | {"throughput_rps": 3000}, "client-saturated: 99%") if row["throughput_rps"] > 6000 else row
        ]

    loads = tuple(f"closed:{n}" for n in (1, 2, 3, 4, 5, 6, 50, 100))
    (metal,) = [
        one
        for one in scaling(load_run(make_run(tmp_path, Truth(loads=loads, change=change))))
        if one["environment"] == "metal"
    ]
    assert metal["alpha"] == pytest.approx(0.05, rel=1e-3)
    assert metal["largest"] == 6
