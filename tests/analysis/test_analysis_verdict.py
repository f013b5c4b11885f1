"""The verdict recovers a known truth, and every kind of verdict is reached."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import Row, Truth, failed, make_run, suspected

from analysis.judge import EQUIVALENT, INVALID, KINDS, KVM_FASTER, METAL_FASTER, NOT_DISTINGUISHABLE
from analysis.sentence import SENTENCE_LIMIT
from analysis.verdict import verdict


def _judged(tmp_path: Path, truth: Truth) -> dict[str, Any]:
    outcome = verdict(make_run(tmp_path, truth))
    assert json.loads(json.dumps(outcome, allow_nan=False)) == outcome
    assert len(outcome["sentence"]) <= SENTENCE_LIMIT
    for result in outcome["results"]:
        for one in result["metrics"].values():
            assert one["kind"] in KINDS
    return outcome


def _metrics(outcome: dict[str, Any], server: str = "nginx") -> dict[str, Any]:
    (result,) = [r for r in outcome["results"] if r["server"] == server]
    return dict(result["metrics"])


def test_recovers_the_truth(tmp_path: Path) -> None:
    metrics = _metrics(_judged(tmp_path, Truth({"nginx": 0.9}, latency_ratio=1.3, cpu_ratio=1.1, blocks=10)))
    throughput = metrics["throughput"]
    assert throughput["kind"] == METAL_FASTER
    assert throughput["effect_is"] == "overhead"
    assert throughput["effect_low"] < 0.1 < throughput["effect_high"]
    assert throughput["effect"] == pytest.approx(0.1, abs=0.01)
    assert throughput["hodges_lehmann_effect"] == pytest.approx(0.1, abs=0.01)
    assert (throughput["source"], throughput["blocks"], throughput["bound"]) == ("siege", 10, None)
    assert 0 < throughput["noise_floor"] < 0.02
    assert metrics["latency_p99"]["effect"] == pytest.approx(1.3, abs=0.02)
    assert "closed-loop" in metrics["latency_p99"]["label"]
    assert metrics["cpu"]["effect"] == pytest.approx(1.1, abs=0.02)
    assert metrics["host_cpu"]["effect"] == pytest.approx(1.1 * 70 / 45, abs=0.03)


def test_the_guest_may_win(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 1.06}))
    assert _metrics(outcome)["throughput"]["kind"] == KVM_FASTER
    assert outcome["sentence"].startswith("The guest is faster than metal with nginx by ")


def test_equivalent(tmp_path: Path) -> None:
    throughput = _metrics(_judged(tmp_path, Truth({"nginx": 1.0}, noise=0.002, blocks=10)))["throughput"]
    assert throughput["text"] == "equivalent within 2%"


def test_not_distinguishable_says_how_many_more(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 0.99}, noise=0.03))
    throughput = _metrics(outcome)["throughput"]
    assert throughput["kind"] == NOT_DISTINGUISHABLE
    assert throughput["more_blocks"] > 0
    assert f"({throughput['more_blocks']} more blocks needed)" in outcome["sentence"]


def test_below_the_noise_floor(tmp_path: Path) -> None:
    """A steady 4% is no finding in a lab that cannot repeat itself within 10%."""

    def change(row: Row) -> list[Row]:
        off = 1.1 if row["environment"] == "metal-b" else 1.0
        return [row | {"throughput_rps": row["throughput_rps"] * off}]

    throughput = _metrics(_judged(tmp_path, Truth({"nginx": 0.96}, noise=0.001, change=change)))["throughput"]
    assert throughput["kind"] == NOT_DISTINGUISHABLE
    assert throughput["more_blocks"] is None
    assert any("noise floor" in note for note in throughput["notes"])


def test_noise_floor_is_borrowed_where_only_one_server_has_an_aa_arm(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [] if row["environment"] == "metal-b" and row["server"] != "nginx" else [row]

    outcome = _judged(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, change=change))
    assert _metrics(outcome, "nginx")["throughput"]["noise_floor_from"] is None
    assert _metrics(outcome, "lighttz")["throughput"]["noise_floor_from"] == "nginx"


def test_no_aa_arm(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 0.9}, aa=False))
    assert outcome["noise_floor"] is None
    assert "noise floor unknown" in outcome["sentence"]
    assert _metrics(outcome)["throughput"]["kind"] == METAL_FASTER


def test_failed_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        bad = row["environment"] == "kvm-default" and row["block"] <= 2
        return [failed(row, "failed-requests: 3 of 20000 failed")] if bad else [row]

    outcome = _judged(tmp_path, Truth({"nginx": 0.9}, blocks=8, change=change))
    assert outcome["counts"] == {"valid": 22, "suspect": 0, "invalid": 2, "attempts": 24, "planned": 24}
    assert outcome["gates"] == {"failed-requests": 2}
    throughput = _metrics(outcome)["throughput"]
    assert (throughput["kind"], throughput["blocks"], throughput["excluded"]) == (METAL_FASTER, 6, 2)
    assert "2 invalid trials left out" in outcome["sentence"]


def test_nothing_valid_is_invalid_with_its_reason(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, "fingerprint: workers 1, 2")] if row["environment"] == "kvm-default" else [row]

    throughput = _metrics(_judged(tmp_path, Truth(change=change)))["throughput"]
    assert throughput["kind"] == INVALID
    assert throughput["text"].startswith("invalid because fingerprint (6 of 12 trials")


def test_a_doubt_is_not_why_a_trial_was_refused(tmp_path: Path) -> None:
    """The gate that fired most often only makes a trial suspect."""

    def change(row: Row) -> list[Row]:
        why = {"kvm-default": "fingerprint: workers 1, 2", "metal": "tool-failed: made up"}.get(row["environment"])
        if why and (row["environment"] == "kvm-default" or row["block"] == 1):
            return [failed(row, f"foreign-cpu: made up | {why}")]
        return [row]

    outcome = _judged(tmp_path, Truth(change=change))
    assert outcome["gates"] == {"foreign-cpu": 7, "fingerprint": 6, "tool-failed": 1}
    assert _metrics(outcome)["throughput"]["text"].startswith("invalid because fingerprint (7 of 12 trials invalid, ")


def test_only_the_last_attempt_counts(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, "host-lost: gone"), row | {"attempt": 2}]

    outcome = _judged(tmp_path, Truth({"nginx": 0.9}, change=change))
    assert outcome["counts"] == {"valid": 18, "suspect": 0, "invalid": 0, "attempts": 36, "planned": 18}
    assert _metrics(outcome)["throughput"]["kind"] == METAL_FASTER


def _saturate(*gates: str, environments: tuple[str, ...] = ("metal", "metal-b")) -> Any:
    def change(row: Row) -> list[Row]:
        hit = row["environment"] in environments
        return [suspected(row, *(f"{gate}: 0.97" for gate in gates))] if hit else [row]

    return change


def test_a_saturated_client_hands_over_to_the_twin(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 0.9}, change=_saturate("client-saturated")))
    throughput = _metrics(outcome)["throughput"]
    assert (throughput["source"], throughput["bound"]) == ("h2load", None)
    assert outcome["gates"] == {"client-saturated": 12}


def test_saturated_clients_give_a_lower_bound(tmp_path: Path) -> None:
    change = _saturate("client-saturated", "twin-client-saturated")
    outcome = _judged(tmp_path, Truth({"nginx": 0.5}, change=change))
    throughput = _metrics(outcome)["throughput"]
    assert (throughput["kind"], throughput["bound"]) == (METAL_FASTER, "at least")
    assert throughput["text"].startswith("metal is faster by at least ")
    assert "by at least" in outcome["sentence"]
    assert _metrics(outcome)["cpu"]["bound"] is None


def test_limits_on_both_sides_say_nothing(tmp_path: Path) -> None:
    everywhere = ("metal", "metal-b", "kvm-default")
    change = _saturate("link-bound", environments=everywhere)
    throughput = _metrics(_judged(tmp_path, Truth({"nginx": 1.0}, link="100mbit", change=change)))["throughput"]
    assert throughput["text"] == "invalid because the link set the pace on both sides"


def test_a_limited_slower_side_says_nothing(tmp_path: Path) -> None:
    gates = _saturate("client-saturated", "twin-client-saturated", environments=("kvm-default",))
    throughput = _metrics(_judged(tmp_path, Truth({"nginx": 0.5}, change=gates)))["throughput"]
    assert throughput["text"] == "invalid because the client set the pace of the slower side"


def test_equality_under_a_limit_is_no_evidence(tmp_path: Path) -> None:
    gates = _saturate("client-saturated", "twin-client-saturated", environments=("metal",))
    throughput = _metrics(_judged(tmp_path, Truth({"nginx": 1.0}, noise=0.001, change=gates)))["throughput"]
    assert throughput["text"] == "invalid because the client set the pace: no evidence of equality"


def test_an_aborted_run_with_few_blocks(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 0.5}, blocks=2, status="running"))
    throughput = _metrics(outcome)["throughput"]
    assert (throughput["kind"], throughput["more_blocks"]) == (NOT_DISTINGUISHABLE, 4)
    assert throughput["effect"] == pytest.approx(0.5, abs=0.02)
    assert outcome["sentence"].startswith("Incomplete run (6 of 6 trials): ")


def test_no_trial_at_all(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth(change=lambda row: [], status="running"))
    assert outcome["results"] == []
    assert outcome["sentence"].startswith("Incomplete run (0 of 18 trials): there is no guest")


def test_emulation_is_said_first(tmp_path: Path) -> None:
    servers = {"lighttz": 0.045, "nginx": 0.05, "lighttpd": 0.06, "apache-prefork": 0.11}
    outcome = _judged(tmp_path, Truth(servers, accelerator="tcg"))
    assert outcome["emulated"]
    assert outcome["sentence"].startswith("Emulation (TCG), not KVM: metal is faster than the emulated guest")
    assert "factor of 9.1 (apache-prefork) to 22 (lighttz)" in outcome["sentence"]
    assert math.isclose(_metrics(outcome, "lighttz")["throughput"]["effect"], 0.955, abs_tol=0.002)


def test_emulation_never_reads_as_kvm(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 1.2}, accelerator="tcg"))
    throughput = _metrics(outcome)["throughput"]
    assert throughput["kind"] == KVM_FASTER
    assert throughput["text"].startswith("the emulated guest is faster by")


def test_long_and_mixed_sentences_stay_within_the_limit(tmp_path: Path) -> None:
    names = [f"a-server-with-a-long-name-{i}" for i in range(9)]
    ratios = [0.8, 0.9, 0.95, 1.0, 1.0, 1.1, 1.2, 0.7, 0.99]
    outcome = _judged(tmp_path, Truth(dict(zip(names, ratios, strict=True)), noise=0.01, accelerator="tcg"))
    assert outcome["sentence"].startswith("Emulation (TCG), not KVM: of 9 comparisons, metal is faster")
    assert outcome["sentence"].endswith(").")


def test_each_guest_has_its_verdict(tmp_path: Path) -> None:
    outcome = _judged(tmp_path, Truth({"nginx": 0.9}, guests=("kvm-default", "kvm-tuned")))
    assert [r["environment"] for r in outcome["results"]] == ["kvm-default", "kvm-tuned"]


def test_differences_are_counted(tmp_path: Path) -> None:
    undeclared = [{"fact": "sysctls: net.core.somaxconn", "values": {"metal": "4096", "kvm-default": "128"}}]
    outcome = _judged(tmp_path, Truth({"nginx": 0.9}, undeclared=undeclared))
    assert outcome["undeclared_differences"] == 1
    assert "1 undeclared difference)" in outcome["sentence"]


def test_all_kinds_are_known() -> None:
    assert set(KINDS) == {METAL_FASTER, KVM_FASTER, EQUIVALENT, NOT_DISTINGUISHABLE, INVALID}
