"""What each step gives back: known sizes are found, nothing is found where nothing is, what is missing is said."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from ladder_run import LADDER, LEVELS, Climb, make_climb
from synthetic_run import Truth, make_run

from analysis.charts import draw_all
from analysis.ladder import ladder
from analysis.latency import trial_name
from analysis.load import Run, load_run
from analysis.report import write_report
from analysis.verdict import verdict_of

TRUTH = {"throughput": "rps", "tail": "p99_us", "host_cpu": "host_us"}
STEPS = [
    ("cumulative", "kvm-2009", "kvm-default"), ("cumulative", "kvm-default", "kvm-step-pinned"),
    ("cumulative", "kvm-step-pinned", "kvm-tuned"), ("single", "kvm-default", "kvm-pinned"),
    ("single", "kvm-default", "kvm-halt-poll"),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_climb(tmp_path_factory.mktemp("climb"), Climb()))


def of(run: Run) -> dict[str, dict[str, Any]]:
    """Metric → its entry: rates of the closed loop, tails of the open one, CPU of the open one."""
    found = ladder(run)
    assert found is not None
    return {name: entry for scenario in found["scenarios"] for name, entry in scenario["metrics"].items()}


def true_gain(metric: str, step: dict[str, Any]) -> float:
    before, after = (getattr(LEVELS[step[side]], TRUTH[metric]) for side in ("before", "after"))
    return float(after - before) * (1 if metric == "throughput" else -1)


def test_known_steps_are_found(run: Run) -> None:
    entries = of(run)
    words = {
        "throughput": ["gives back", "not distinguishable", "gives back", "not distinguishable", "gives back"],
        "tail": ["gives back", "not distinguishable", "gives back", "not distinguishable", "gives back"],
        "host_cpu": ["gives back", "not distinguishable", "costs", "not distinguishable", "costs"],
    }
    for name, expected in words.items():
        steps = entries[name]["steps"]
        assert [(step["kind"], step["before"], step["after"]) for step in steps] == STEPS
        assert [step["verdict"] for step in steps] == expected, name
        for step in steps:
            truth = true_gain(name, step)
            assert step["gain"] == pytest.approx(truth, abs=0.05 * abs(truth) + 0.02 * step["start"])
            assert step["gain_low"] < step["gain"] < step["gain_high"]
            assert step["family"] == (10 if name == "host_cpu" else 5)
        assert all(step["p_holm"] >= step["p_value"] for step in steps)


def test_a_step_in_words(run: Run) -> None:
    steps = of(run)["throughput"]["steps"]
    gained = f"{steps[0]['gain']:,.0f} req/s ({100 * steps[0]['gain'] / steps[0]['start']:.0f}%)"
    assert steps[0]["text"] == f"gives back {gained}"
    assert steps[1]["text"].startswith("not distinguishable (")
    costs = of(run)["host_cpu"]["steps"][2]
    assert costs["text"] == f"costs {-costs['gain']:.3g} µs"


def test_steps_add_up_to_the_whole_climb(run: Run) -> None:
    entries = of(run)
    for name in TRUTH:
        levels, climbing = entries[name]["levels"], entries[name]["steps"][:3]
        whole = (levels["kvm-tuned"] - levels["kvm-2009"]) * (1 if name == "throughput" else -1)
        assert sum(step["gain"] for step in climbing) == pytest.approx(whole)
    ratios = [step["ratio"] for step in entries["throughput"]["steps"][:3]]
    levels = entries["throughput"]["levels"]
    assert math.prod(ratios) == pytest.approx(levels["kvm-tuned"] / levels["kvm-2009"])
    assert levels["metal"] == pytest.approx(LEVELS["metal"].rps, rel=0.1)


def test_intervals_cover_the_truth(tmp_path: Path) -> None:
    """Of 8 servers with 5 steps each, at 95%; the steps of one server share a side, so the bound has room."""
    servers = tuple(f"server-{n}" for n in range(8))
    found = ladder(load_run(make_climb(tmp_path, Climb(servers=servers, blocks=6, noise=0.02))))
    assert found is not None
    covered = []
    for name, entry in ((name, entry) for one in found["scenarios"] for name, entry in one["metrics"].items()):
        for step in entry["steps"] if name in TRUTH else ():
            truth = true_gain(name, step)
            if name == "throughput":  # of a rate the ratio is known: blocks drift
                truth *= step["start"] / LEVELS[step["before"]].rps
            covered.append(step["gain_low"] <= truth <= step["gain_high"])
    assert len(covered) == 8 * 5 * 4
    assert 0.9 <= sum(covered) / len(covered) < 1


WHY = "the inventory has no such guest; it needs hugepages"


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A rung lacks, the guests are emulated, and of one guest the host counted exits all the same."""
    there = tuple(name for name in Climb().guests if name != "kvm-step-pinned")
    skipped = [{"environment": "kvm-step-pinned", "why": WHY}, {"server": "thttpd", "why": "no source"}]
    climb = Climb(guests=there, blocks=6, skipped=skipped, accelerator="tcg")
    loaded = load_run(make_climb(tmp_path_factory.mktemp("lacking"), climb))
    (loaded.path / "telemetry").mkdir()
    trials = loaded.trials[(loaded.trials["environment"] == "kvm-2009") & (loaded.trials["tool"] == "vegeta")]
    for place, trial in enumerate(trials.itertuples()):
        kvm = {"exits": 5000, "io_exits": 3000, "halt_exits": 1000, "halt_poll_success_ns": 10**9}
        if place % 2:
            kvm["mmio_exits"] = 10
        name = trial_name(trial.block, trial.order, trial.attempt)
        told = {"tool": {"requests": 1000, "kvm": kvm}}
        (loaded.path / "telemetry" / f"{name}.json").write_text(json.dumps(told))
    return loaded


@pytest.fixture(scope="module")
def section(lacking: Run) -> str:
    """What the report says of the ladder."""
    text = write_report(lacking.path).read_text(encoding="utf-8")
    assert text.count('<figure id="waterfall-') == 3
    return text[text.index('<h2 id="ladder">') : text.index('<h2 id="rests">')]


def test_a_rung_that_is_not_there_is_skipped_and_said(lacking: Run, section: str) -> None:
    found = ladder(lacking)
    assert found is not None
    assert found["skipped"] == [{"environment": "kvm-step-pinned", "why": WHY}]
    steps = found["scenarios"][0]["metrics"]["throughput"]["steps"]
    assert [(step["before"], step["after"], step["over"]) for step in steps[:2]] == [
        ("kvm-2009", "kvm-default", []), ("kvm-default", "kvm-tuned", ["kvm-step-pinned"]),
    ]  # fmt: skip
    assert f"skipped: {WHY}" in section
    assert "over kvm-step-pinned" in section
    assert "Not measured: kvm-step-pinned." in section


def test_without_the_base_nothing_is_compared_with_it(tmp_path: Path) -> None:
    guests = tuple(name for name in Climb().guests if name != "kvm-default")
    found = of(load_run(make_climb(tmp_path, Climb(guests=guests))))
    assert [(s["kind"], s["before"], s["after"]) for s in found["tail"]["steps"]] == [
        ("cumulative", "kvm-2009", "kvm-step-pinned"), ("cumulative", "kvm-step-pinned", "kvm-tuned"),
    ]  # fmt: skip


def test_too_few_blocks_tell_nothing(tmp_path: Path) -> None:
    for step in of(load_run(make_climb(tmp_path, Climb(blocks=3))))["throughput"]["steps"]:
        assert step["text"] == "not distinguishable (3 more blocks needed)"
        assert step["p_holm"] is None


def test_a_client_at_its_limit_is_no_finding_of_the_guest(tmp_path: Path) -> None:
    limit = "client-saturated: 99% | twin-client-saturated: 99%"
    path = make_climb(tmp_path, Climb(reasons={"kvm-tuned": limit}))
    entries = of(load_run(path))
    assert entries["throughput"]["steps"][2]["text"].startswith("gives back at least ")
    assert entries["tail"]["steps"][2]["verdict"] == "invalid because"
    path = make_climb(tmp_path / "slow", Climb(reasons={"kvm-2009": limit}))
    assert of(load_run(path))["throughput"]["steps"][0]["text"] == (
        "invalid because the client or the link set the pace of the slower side"
    )


def test_what_the_host_saw_stands_beside_it(lacking: Run, section: str) -> None:
    found = ladder(lacking)
    assert found is not None
    host = {one["environment"]: one for one in found["scenarios"][1]["host"]}
    assert host["kvm-2009"]["exits"] == 40
    assert host["kvm-2009"]["vcpu_us"] == 200
    assert host["kvm-2009"]["qemu_us"] is None
    assert host["kvm-2009"]["reasons"] == {"io": 3.0, "halt": 1.0, "mmio": 0.005}, "half of the trials had no mmio"
    assert host["kvm-tuned"]["reasons"] == {}
    assert "io 3, halt 1, mmio 0.005" in section


def test_the_waterfall_shows_every_step_and_metal(run: Run) -> None:
    drawn = dict(draw_all(run, verdict_of(run), ["waterfall"]))
    assert list(drawn) == ["waterfall-1", "waterfall-2", "waterfall-3"]
    for chart in drawn.values():
        for rung in [*LADDER["cumulative"], *LADDER["single"]]:
            assert rung in chart.alt
        assert "Metal: " in chart.alt
        (axes,) = chart.figure.axes
        assert len(axes.patches) == 2 + len(STEPS)
    first, *steps = (bar.get_bbox() for bar in drawn["waterfall-1"].figure.axes[0].patches[:4])
    assert first.x0 == 0
    for below, above in zip([first, *steps], steps, strict=False):
        assert above.x0 == pytest.approx(below.x1)
    assert steps[-1].x1 == pytest.approx(LEVELS["kvm-tuned"].rps, rel=0.1)


def test_the_report_has_it_with_emulation_said(section: str) -> None:
    assert section.count('<figure id="waterfall-') == 3
    assert "Under emulation a step says nothing of KVM" in section
    assert section.count("What the host saw, per request") == 2
    assert len(re.findall(r"<h3>What each step gives back: .*, emulated\)</h3>", section)) == 3


def test_a_run_without_a_ladder_has_none(tmp_path: Path) -> None:
    plain = load_run(make_run(tmp_path, Truth(blocks=2)))
    outcome = verdict_of(plain)
    assert outcome["ladder"] is None
    assert draw_all(plain, outcome, ["waterfall"]) == []
