"""The sentence that answers for a run: what it names, in which order, and how long it may be."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import (
    Row,
    Truth,
    closed_load,
    failed_trial,
    make_run,
    rate_load,
    role_findings,
    with_findings,
)
from tests.unit.analysis.test_baseline import WITHOUT_METAL
from tests.unit.report.test_words import SNAPSHOTS, is_text, verdict
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import CPU, HOST_CPU, TAIL, THROUGHPUT, Metric
from vmtoll.model.run import OneBoot
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.model.verdict import (
    Estimate,
    Kind,
)
from vmtoll.report import words
from vmtoll.report.words.headline import Answer


def headline(parent: Path, truth: Truth) -> str:
    return words.sentence(analyse(load_run(make_run(parent, truth))))


def limited(row: Row) -> list[Row]:
    """Metal's trials are limited by the client."""
    on_metal = row["arm"] == Arm("metal")
    return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, *Role)) if on_metal else row]


def limited_closed_loop(row: Row) -> list[Row]:
    """Limited by the client in every block the throughput stays open, and the tail does not."""
    return [row if row["load"].is_open else with_findings(row, *role_findings(Code.CLIENT_SATURATED, *Role))]


BOTH_LOOPS = (closed_load(), rate_load(1000))
LONG_NAMES = {f"a-server-with-a-name-as-long-as-this-{n}": 0.999 for n in range(8)}
OPEN_THROUGHPUT = Truth(
    {"nginx": 0.9}, loads=BOTH_LOOPS, latency_ratio=2.0, noise=0.001, change=limited_closed_loop
)  # fmt: skip
TRUTHS = {
    "one server": Truth({"nginx": 0.5}, noise=0.0005),
    "three emulated servers": Truth({"nginx": 0.05, "lighttz": 0.04, "lighttpd": 0.1}, accelerator=Accelerator.TCG),
    "a tail under open load": Truth({"nginx": 0.5}, loads=BOTH_LOOPS, latency_ratio=2.0),
    "eight servers with long names, and noise": Truth(LONG_NAMES, noise=0.05),
    "an incomplete run without figures": Truth(
        blocks=1, status="running", change=lambda row: [failed_trial(row, Code.TOOL_FAILED, "killed")]
    ),
    "a limited side": Truth({"nginx": 0.5}, aa=False, change=limited),
    "equal figures": Truth({"nginx": 1.0}, noise=0.0005),
    "differences among servers": Truth({"nginx": 0.8, "lighttz": 1.3, "apache": 0.7}, noise=0.001),
    "a limited throughput and a decided tail": OPEN_THROUGHPUT,
    "metal against a guest": Truth({"nginx": 0.5}, baseline="kvm-default"),
    "two guests without metal": WITHOUT_METAL,
    "nested KVM": Truth({"nginx": 0.9}, blocks=2, hardware=Hardware.NESTED),
    "KVM on emulated hardware": Truth({"nginx": 0.9}, blocks=2, hardware=Hardware.EMULATED),
    "native KVM": Truth({"nginx": 0.9}, blocks=2),
}


def test_the_headlines(tmp_path: Path) -> None:
    """The sentence of each run with its basis, and the answers of its page."""
    said: dict[str, dict[str, Iterable[str]]] = {}
    for name, truth in TRUTHS.items():
        analysis = analyse(load_run(make_run(tmp_path / name, truth)))
        answers = [answer.text for answer in words.headline(analysis).answers]
        said[f"Of {name}"] = {"sentence": words.sentence(analysis), "answers": answers}
    assert_snapshot(SNAPSHOTS / "headline.txt", said)


@pytest.mark.parametrize("length", [10, 60, 120])
def test_a_headline_has_an_interval_however_long_the_names_are(tmp_path: Path, length: int) -> None:
    """It is cited: of three servers that take too much room the least and the largest, in the end without names."""
    servers = {f"{name * length}": size for name, size in (("a", 0.5), ("b", 0.25), ("c", 0.1))}
    text = headline(tmp_path, Truth(servers, accelerator=Accelerator.TCG))
    assert len(text) <= words.SENTENCE_LIMIT
    assert len(re.findall(r"× \([\d.]+ to [\d.]+\)", text)) >= 2, text


def test_a_long_headline_counts(tmp_path: Path) -> None:
    text = headline(tmp_path, TRUTHS["eight servers with long names, and noise"])
    assert len(text) <= words.SENTENCE_LIMIT
    assert "a-server" not in text


def test_limited_sides_are_open_upwards(tmp_path: Path) -> None:
    (comparison,) = analyse(load_run(make_run(tmp_path, TRUTHS["a limited side"]))).comparisons
    assert comparison.verdicts[THROUGHPUT.name].is_at_least


def answers(parent: Path, truth: Truth) -> Sequence[Answer]:
    return words.headline(analyse(load_run(make_run(parent, truth)))).answers


def test_the_last_answer_is_the_cpu_of_a_request_on_its_host(tmp_path: Path) -> None:
    assert answers(tmp_path, Truth({"nginx": 0.9}, noise=0.001))[-1].metric == HOST_CPU


@pytest.mark.parametrize(
    "truth",
    [
        Truth({"nginx": 0.5}),
        Truth({"nginx": 0.9, "lighttz": 1.1, "lighttpd": 1.0, "h2o": 1.2}, loads=(closed_load(), rate_load(1000))),
        Truth({"nginx": 0.05, "lighttz": 0.04}, accelerator=Accelerator.TCG, latency_ratio=30, cpu_ratio=20),
        Truth({"nginx": 0.9}, hardware=Hardware.EMULATED),
        Truth({"nginx": 1.0}, noise=0.0005),
        Truth({"nginx": 0.9, "lighttz": 0.9}, noise=0.3),
    ],
)
def test_an_answer_is_short(tmp_path: Path, truth: Truth) -> None:
    for text in (answer.text for answer in answers(tmp_path, truth)):
        assert text.endswith(".") and is_text(text)
        assert len(text.split()) <= 25, text


def test_a_decided_answer_comes_first(tmp_path: Path) -> None:
    first, second, *_ = answers(tmp_path, OPEN_THROUGHPUT)
    assert (first.metric, first.kinds) == (TAIL, frozenset({Kind.SLOWER}))
    assert (second.metric, second.kinds) == (THROUGHPUT, frozenset({Kind.UNDECIDED}))


def test_terms_of_the_headline_are_explained(tmp_path: Path) -> None:
    bounded = analyse(load_run(make_run(tmp_path / "bound", Truth({"nginx": 0.5}, change=limited))))
    assert {"Bound: at least, at most", "A/A difference"} <= {item.word for item in words.explanations(bounded)}
    noisy = analyse(load_run(make_run(tmp_path / "noisy", Truth({"nginx": 0.99}, noise=0.1, aa=False))))
    assert {"Undecided", "A/A difference unknown"} <= {item.word for item in words.explanations(noisy)}
    assert "Bound: at least, at most" not in {item.word for item in words.explanations(noisy)}


def test_a_ratio_over_two_decades_is_called_vague() -> None:
    wide = verdict(TAIL, Kind.SLOWER, estimate=Estimate(29.0, 2.05, 416.0))
    assert words.is_vague(wide)
    assert not words.is_vague(verdict(TAIL, Kind.SLOWER, estimate=Estimate(29.0, 10.2, 83.6)))
    assert not words.is_vague(verdict(THROUGHPUT, Kind.SLOWER, 0.9))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"estimate": Estimate(0.981, 0.976, 0.987)}, "0.981× (0.976 to 0.987)"),
        ({"estimate": Estimate(0.0151, 0.01062, 0.02164)}, "0.0151× (0.0106 to 0.0216)"),
        ({"estimate": Estimate(0.181, 0.0387, 0.235), "open_low": True}, "0.181× (<0.0387 to 0.235)"),
        ({"estimate": Estimate(2.31, 1.16, 8.41), "open_high": True}, "2.31× (1.16 to >8.41)"),
        ({"estimate": Estimate(43.0, 1.9e-35, 833_735_763.0)}, "43.0× (<0.001 to >10,000)"),
        (
            {"estimate": Estimate(43.0, 2e-4, 20_000.0), "open_low": True, "open_high": True},
            "43.0× (<0.001 to >10,000)",
        ),
        ({"estimate": Estimate(0.99)}, "0.990×"),
        ({"estimate": None}, ""),
        (
            {"estimate": Estimate(0.014), "blocks_range": Estimate(0.014, 1 / 1100, 0.1), "by_every_block": True},
            "each block <0.001 to 0.100×",
        ),
    ],
)
def test_a_ratio_in_a_column_is_short(keys: dict[str, object], text: str) -> None:
    assert words.estimate_text(verdict(THROUGHPUT, Kind.SLOWER, **keys)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "kind", "word"),
    [
        (THROUGHPUT, Kind.SLOWER, "slower"),
        (TAIL, Kind.FASTER, "faster"),
        (CPU, Kind.SLOWER, "more CPU"),
        (HOST_CPU, Kind.FASTER, "less CPU"),
        (CPU, Kind.EQUIVALENT, "equal"),
        (HOST_CPU, Kind.UNDECIDED, "undecided"),
        (TAIL, Kind.NOT_JUDGED, "not judged"),
    ],
)
def test_a_verdict_in_a_word_fits_its_figure(metric: Metric, kind: Kind, word: str) -> None:
    assert words.word_text(verdict(metric, kind, 0.9)) == word


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(250, "250 µs"), (999.4, "999 µs"), (999.9, "1 ms"), (28_883.4, "28.9 ms"), (999_960, "1 s"), (2e6, "2 s")],
)
def test_a_duration_has_three_digits(time_us: float, text: str) -> None:
    assert words.duration(time_us) == text


def test_a_difference_of_one_arm_alone_names_it_beside_others(tmp_path: Path) -> None:
    def failed(row: Row) -> list[Row]:
        return [failed_trial(row, Code.SERVER_FAILED)] if row["arm"] == Arm("container") else [row]

    text = headline(tmp_path, Truth({"nginx": 0.5}, noise=0.0005, guests=("container", "kvm-default"), change=failed))
    assert text.startswith("kvm-default serves 0.500× the requests per second of metal in 1 of 2 comparisons")


def beside(container: float, **keys: Any) -> Truth:
    """kvm-default at half of metal's rate, and a container at this share of it."""

    def scaled(row: Row) -> list[Row]:
        scale = container / 0.5 if row["arm"] == Arm("container") else 1.0
        return [row | {"throughput_rps": scale * row["throughput_rps"]}]

    given: dict[str, Any] = {"noise": 0.0005, "guests": ("container", "kvm-default"), "change": scaled}
    return Truth({"nginx": 0.5}, **(given | keys))


def test_a_count_of_verdicts_names_the_arm_of_each(tmp_path: Path) -> None:
    first, *_ = answers(tmp_path, beside(2.0))
    assert first.text == (
        "Requests per second against metal, 2 comparisons: slower on kvm-default in 1 (0.500×), faster on container in "
        "1 (2.00×)."
    )


def test_what_all_blocks_of_one_arm_show_names_it_beside_others(tmp_path: Path) -> None:
    first, *_ = answers(tmp_path, beside(1.0, blocks=2, aa=False))
    assert first.text == (
        "Requests per second against metal, 2 comparisons: undecided in 2 (slower in every block in 1 on kvm-default)."
    )


def test_the_lost_trials_of_a_baseline_count_once_beside_several_arms(tmp_path: Path) -> None:
    def failed(row: Row) -> list[Row]:
        is_lost = row["block"] == 1 and row["arm"] in (Arm("metal"), Arm("container"))
        return [failed_trial(row, Code.SERVER_FAILED)] if is_lost else [row]

    analysis = analyse(load_run(make_run(tmp_path, beside(0.5, change=failed, blocks=8, aa=False))))
    assert [part for part in words.headline(analysis).basis if " lost " in part] == [
        "metal lost 1 of 8 trials", "container lost 1 of 8 trials",
    ]  # fmt: skip


def test_the_basis_says_why_there_is_one_boot_and_what_a_boot_restarted(tmp_path: Path) -> None:
    """The embedded lab restarts its containers, of which metal is one, and its guests."""

    def boots_text(name: str, truth: Truth, one_boot: OneBoot | None = None) -> str:
        run = load_run(make_run(tmp_path / name, truth))
        manifest = run.manifest.model_copy(update={"one_boot": one_boot})
        (text,) = [part for part in words.headline(analyse(replace(run, manifest=manifest))).basis if "boot" in part]
        return text

    assert boots_text("older", Truth()) == "one boot"
    assert (
        boots_text("kept", Truth(), OneBoot(machine="metal", why="is this machine"))
        == "one boot (metal is this machine)"
    )
    in_pairs = Truth(blocks=8, change=lambda row: [row | {"boot": (row["block"] + 1) // 2}])
    assert boots_text("lab", in_pairs) == "4 boots (restarts of guest and container; the host was not rebooted)"
    guests = replace(in_pairs, metal=False, guests=("kvm-default", "kvm-tuned"), aa=False)
    assert boots_text("guests", guests) == "4 boots (restarts of guest; the host was not rebooted)"
