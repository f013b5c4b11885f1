"""Verdicts under an open loop, within a family, and where closed and open loop disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import Row, Truth, failed, make_run, suspected

from analysis.judge import EQUIVALENT, INVALID, METAL_FASTER, NOT_DISTINGUISHABLE
from analysis.sentence import SENTENCE_LIMIT
from analysis.verdict import verdict


def _judged(tmp_path: Path, truth: Truth) -> dict[str, Any]:
    outcome = verdict(make_run(tmp_path, truth))
    assert json.loads(json.dumps(outcome, allow_nan=False)) == outcome
    assert len(outcome["sentence"]) <= SENTENCE_LIMIT
    return outcome


def _metrics(outcome: dict[str, Any], load: str, server: str = "nginx") -> dict[str, Any]:
    (result,) = [r for r in outcome["results"] if (r["server"], r["offered_load"]) == (server, load)]
    return dict(result["metrics"])


def test_the_tail_recovers_the_truth(tmp_path: Path) -> None:
    """At a quarter of the capacity the guest's p99 is 1.3 times metal's, and a little more for its own queue."""
    outcome = _judged(tmp_path, Truth({"nginx": 0.99}, latency_ratio=1.3, blocks=10, loads=("rate:1000",)))
    metrics = _metrics(outcome, "rate:1000")
    tail = metrics["tail"]
    assert (tail["kind"], tail["source"], tail["applies"]) == (METAL_FASTER, "vegeta", True)
    assert tail["effect_is"] == "cost ratio"
    assert tail["effect"] == pytest.approx(1.3, abs=0.02)
    assert 0 < tail["noise_floor"] < 0.02
    assert metrics["cpu"]["effect"] == pytest.approx(1.1, abs=0.02)
    assert outcome["sentence"].startswith("P99 under open load: metal is faster than the guest with nginx")
    assert outcome["noise_floor"] == tail["noise_floor"]


def test_each_load_has_the_metrics_that_it_can_have(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth(loads=("closed:10", "rate:1000")))
    closed, opened = _metrics(outcome, "closed:10"), _metrics(outcome, "rate:1000")
    assert [name for name, one in closed.items() if not one["applies"]] == ["tail"]
    assert [name for name, one in opened.items() if not one["applies"]] == ["throughput", "latency_p99"]
    for one in (closed["tail"], opened["throughput"], opened["latency_p99"]):
        assert (one["kind"], one["blocks"], "ratio" in one) == (INVALID, 0, False)
    assert closed["tail"]["text"] == "invalid because a closed loop has no tail: it hides stalls"


def test_an_offered_rate_is_no_capacity(tmp_path: Path) -> None:
    """2,000/s offered to 4,000/s and 1,000/s of capacity: the guest attains half, and that is all that is said."""
    outcome = _judged(tmp_path, Truth({"nginx": 0.25}, drift=0.0, loads=("rate:500", "rate:2000")))
    words = "invalid because the load sets the rate, not the server: "
    assert _metrics(outcome, "rate:500")["throughput"]["text"] == words + "offered load reached on both sides"
    assert _metrics(outcome, "rate:2000")["throughput"]["text"] == words + "kvm-default answered 50% of 2,000/s"


def test_a_share_says_the_rate_of_each_side(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 0.5}, drift=0.0, loads=("share:0.5",)))
    notes = _metrics(outcome, "share:0.5")["tail"]["notes"]
    assert "each side at its own rate: 2,000/s on metal, 1,000/s on kvm-default" in notes


def test_throughput_and_tail_share_the_sentence(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth(blocks=10, loads=("closed:10", "rate:1000")))
    first, second = outcome["sentence"].split("; p99 under open load: ")
    assert first.startswith("Metal is faster than the guest with nginx")
    assert second.startswith("metal is faster than the guest with nginx")


def test_a_long_ladder_is_counted(tmp_path: Path) -> None:
    servers = {f"a-server-with-a-long-name-{i}": 0.9 for i in range(4)}
    outcome = _judged(tmp_path, Truth(servers, loads=("closed:10", "rate:500", "rate:1000", "rate:2000")))
    assert "p99 under open load: " in outcome["sentence"]
    assert outcome["sentence"].endswith(").")


def test_a_noise_floor_is_borrowed_under_the_same_load(tmp_path: Path) -> None:
    """nginx has the A/A arm, and repeats itself badly near its end: that says nothing of a light load."""

    def change(row: Row) -> list[Row]:
        if row["environment"] == "metal-b" and row["server"] != "nginx":
            return []
        rough = row["environment"] == "metal-b" and row["offered_load"] == "rate:3000"
        return [row | {"response_time_p99_us": row["response_time_p99_us"] * 1.5} if rough else row]

    outcome = _judged(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, loads=("rate:500", "rate:3000"), change=change))
    light, heavy = (_metrics(outcome, load, "lighttz")["tail"] for load in ("rate:500", "rate:3000"))
    assert light["noise_floor_from"] == heavy["noise_floor_from"] == "nginx"
    assert light["noise_floor"] == _metrics(outcome, "rate:500")["tail"]["noise_floor"] < 0.02
    assert heavy["noise_floor"] == _metrics(outcome, "rate:3000")["tail"]["noise_floor"] > 0.5


def _limit(gate: str, environments: tuple[str, ...], blocks: int) -> Any:
    def change(row: Row) -> list[Row]:
        hit = row["environment"] in environments and row["block"] <= blocks
        return [suspected(row, f"{gate}: made up")] if hit else [row]

    return change


def test_a_client_that_lags_changes_the_load(tmp_path: Path) -> None:
    for blocks, kind in ((4, INVALID), (3, METAL_FASTER)):
        change = _limit("rate-not-reached", ("kvm-default",), blocks)
        outcome = _judged(tmp_path / str(blocks), Truth(loads=("rate:1000",), change=change))
        tail = _metrics(outcome, "rate:1000")["tail"]
        assert (tail["kind"], tail["bound"], tail["limited"]) == (kind, None, blocks)
        assert f"the client set the pace in {blocks} of 6 trials on kvm-default" in tail["notes"]
    change = _limit("client-starved", ("metal", "metal-b", "kvm-default"), 6)
    tail = _metrics(_judged(tmp_path / "all", Truth(loads=("rate:1000",), change=change)), "rate:1000")["tail"]
    assert tail["text"] == "invalid because the client, not the server, made the tail"


def test_a_cross_check_that_disagrees_is_named(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        guest = row["environment"] == "kvm-default"
        return [row | {"twin_response_time_p99_us": row["response_time_p99_us"] * (1.5 if guest else 1.0)}]

    agreed = _metrics(_judged(tmp_path / "a", Truth(loads=("rate:1000",))), "rate:1000")["tail"]
    assert not any("cross-check" in note for note in agreed["notes"])
    tail = _metrics(_judged(tmp_path / "b", Truth(loads=("rate:1000",), change=change)), "rate:1000")["tail"]
    (note,) = [note for note in tail["notes"] if "cross-check" in note]
    assert note.startswith("the cross-check by oha disagrees: guest ÷ metal 1.8")


def test_failed_requests_stand_beside_the_p99(tmp_path: Path) -> None:
    """Of 6 × 4,000 requests on the guest 240 failed: the rate and its Wilson interval, though the trials are out."""

    def change(row: Row) -> list[Row]:
        bad = row["environment"] == "kvm-default" and row["block"] == 1
        lost = {"successful": 3760, "failed": 240, "verdict": "invalid", "reasons": "failed-requests: 240 failed"}
        return [row | lost if bad else row]

    tail = _metrics(_judged(tmp_path, Truth(loads=("rate:1000",), blocks=6, change=change)), "rate:1000")["tail"]
    guest = tail["availability"]["guest"]
    assert (guest["requests"], guest["successful"], guest["share"]) == (24000, 23760, 0.99)
    assert (guest["low"], guest["high"]) == pytest.approx((0.98866, 0.99118), abs=5e-6)
    assert tail["availability"]["metal"]["share"] == 1.0
    assert "failed requests: 1% [0.88, 1.1] on kvm-default" in tail["notes"]
    assert tail["excluded"] == 1


def test_the_estimator_of_2009_stands_beside_the_interval(tmp_path: Path) -> None:
    figures: dict[str, list[float]] = {"metal": [], "kvm-default": [], "metal-b": []}

    def change(row: Row) -> list[Row]:
        figures[row["environment"]].append(row["throughput_rps"])
        return [row]

    throughput = _metrics(_judged(tmp_path, Truth(blocks=8, change=change)), "closed:10")["throughput"]
    trimmed = throughput["trimmed_2009"]
    for side, environment in (("metal", "metal"), ("guest", "kvm-default")):
        assert trimmed[side] == pytest.approx(sum(sorted(figures[environment][:6])[1:5]) / 4)
    assert trimmed["ratio"] == pytest.approx(0.9, abs=0.01)
    assert "no interval" in trimmed["label"]


def test_a_difference_that_does_not_survive_holm_is_none(tmp_path: Path) -> None:
    """One comparison alone finds it; among eight servers, seven of them without a difference, it drowns."""
    servers = {"nginx": 1.0} | {f"other-{i}": 1.0 for i in range(7)}

    # Throughput of the guest 5% lower, give or take: p = 0.016 whatever the noise of the run.
    def change(row: Row) -> list[Row]:
        if row["server"] != "nginx":
            return [row]
        off = {1: 0.90, 2: 0.98, 3: 0.93, 4: 0.99, 5: 0.91, 6: 0.99}[row["block"]]
        return [row | {"throughput_rps": 5000.0 * (off if row["environment"] == "kvm-default" else 1.0)}]

    alone = _judged(tmp_path / "alone", Truth({"nginx": 1.0}, change=change))
    crowd = _judged(tmp_path / "crowd", Truth(servers, change=change))
    one, other = (_metrics(outcome, "closed:10")["throughput"] for outcome in (alone, crowd))
    assert (one["family"], other["family"]) == (1, 8)
    assert one["p_value"] == one["p_holm"] == other["p_value"] < 0.05
    assert one["kind"] == METAL_FASTER
    assert other["p_holm"] > 0.05
    assert other["kind"] == NOT_DISTINGUISHABLE
    assert other["more_blocks"] > 0
    assert any("does not survive Holm among 8 comparisons" in note for note in other["notes"])


def test_a_comparison_without_figures_stays_in_the_family(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        bad = row["server"] == "lighttz" and row["environment"] == "kvm-default"
        return [failed(row, "server-failed: made up")] if bad else [row]

    outcome = _judged(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, change=change))
    lost = _metrics(outcome, "closed:10", "lighttz")["throughput"]
    assert (lost["kind"], lost["p_value"], lost["p_holm"], lost["family"]) == (INVALID, None, None, 2)
    found = _metrics(outcome, "closed:10")["throughput"]
    assert found["p_holm"] == pytest.approx(2 * found["p_value"])


def test_the_experiment_may_set_the_margin(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.96}, noise=0.002, blocks=10)
    path = make_run(tmp_path, truth)
    assert verdict(path)["margin"] == 0.02
    assert _metrics(verdict(path), "closed:10")["throughput"]["kind"] == METAL_FASTER
    document = json.loads((path / "run.json").read_text())
    document["experiment"]["margin_pct"] = 5
    (path / "run.json").write_text(json.dumps(document))
    assert verdict(path)["margin"] == 0.05
    assert _metrics(verdict(path), "closed:10")["throughput"]["text"] == "equivalent within 5%"


def test_loops_that_disagree_stand_side_by_side(tmp_path: Path) -> None:
    """The guest stalls; the closed loop sees nothing of it, the open loop waits."""

    def change(row: Row) -> list[Row]:
        if row["tool"] != "vegeta" or row["environment"] != "kvm-default":
            return [row]
        late = row | {"response_time_p99_us": row["response_time_p99_us"] * 3}
        return [suspected(late, "stalled: made up") if row["block"] <= 2 else late]

    truth = Truth({"nginx": 1.0}, latency_ratio=1.0, cpu_ratio=1.1, noise=0.002, drift=0.0, blocks=8)
    truth.loads, truth.change = ("closed:10", "rate:2100"), change
    outcome = _judged(tmp_path, truth)
    (found,) = outcome["disagreements"]
    assert (found["server"], found["environment"]) == ("nginx", "kvm-default")
    assert (found["closed"]["metric"], found["closed"]["kind"]) == ("latency_p99", EQUIVALENT)
    assert (found["open"]["metric"], found["open"]["kind"]) == ("tail", METAL_FASTER)
    assert found["open"]["text"].startswith("metal is faster by a factor of 3")
    assert found["reason"].startswith("a closed loop asks again only when it has its answer, so that it hides stalls")
    assert "2 open-loop trials were stalled" in found["reason"]
    assert "2,100/s on metal, 26% of what the closed loop drew from it" in found["reason"]


def test_loops_that_agree_or_say_nothing_are_not_listed(tmp_path: Path) -> None:
    assert _judged(tmp_path / "a", Truth(loads=("closed:10", "rate:1000")))["disagreements"] == []

    def change(row: Row) -> list[Row]:
        bad = row["tool"] == "vegeta" and row["environment"] == "kvm-default"
        return [failed(row, "tool-failed: made up")] if bad else [row]

    assert _judged(tmp_path / "b", Truth(loads=("closed:10", "rate:1000"), change=change))["disagreements"] == []
