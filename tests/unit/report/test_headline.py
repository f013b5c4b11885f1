"""The sentence that answers for a run: what it names, in which order, and how long it may be."""

import re
from pathlib import Path

import pytest

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
from tests.unit.report.test_words import SIDES, is_text, verdict
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import CPU, HOST_CPU, TAIL, THROUGHPUT, Metric
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.model.verdict import (
    Estimate,
    Kind,
)
from vmtoll.report import words


def headline(parent: Path, truth: Truth) -> str:
    return words.sentence(analyse(load_run(make_run(parent, truth))))


def test_the_headline_names_the_effect_and_its_basis(tmp_path: Path) -> None:
    text = headline(tmp_path, Truth({"nginx": 0.5}, noise=0.0005))
    assert re.fullmatch(
        r"The guest serves 2\.0× \(nginx\) fewer requests per second than metal\."
        r" Evidence: nginx 2\.0× \(\S+ to \S+×\); 6 blocks, one host, one boot, A/A difference at most [\d.]+%\.",
        text,
    )


def test_the_headline_puts_emulation_first(tmp_path: Path) -> None:
    text = headline(tmp_path, Truth({"nginx": 0.05, "lighttz": 0.04, "lighttpd": 0.1}, accelerator=Accelerator.TCG))
    assert text.startswith("Emulation (TCG), not KVM: the emulated guest serves ")
    assert "(lighttpd) to " in text and "(lighttz) fewer requests per second than metal. Evidence: " in text


def test_the_headline_has_throughput_and_tail(tmp_path: Path) -> None:
    text = headline(tmp_path, Truth({"nginx": 0.5}, loads=(closed_load(), rate_load(1000)), latency_ratio=2.0))
    assert " (nginx) fewer requests per second than metal. Under open load, p99 is " in text


@pytest.mark.parametrize("length", [10, 60, 120])
def test_a_headline_has_an_interval_however_long_the_names_are(tmp_path: Path, length: int) -> None:
    """It is cited: of three servers that take too much room the least and the largest, in the end without names."""
    servers = {f"{name * length}": size for name, size in (("a", 0.5), ("b", 0.25), ("c", 0.1))}
    text = headline(tmp_path, Truth(servers, accelerator=Accelerator.TCG))
    assert len(text) <= words.SENTENCE_LIMIT
    assert len(re.findall(r"× \([\d.]+ to [\d.]+×\)", text)) >= 2, text


def test_a_long_headline_counts(tmp_path: Path) -> None:
    servers = {f"a-server-with-a-name-as-long-as-this-{n}": 0.999 for n in range(8)}
    text = headline(tmp_path, Truth(servers, noise=0.05))
    assert len(text) <= words.SENTENCE_LIMIT
    assert text.startswith("No difference in requests per second between the guest and metal is shown beyond chance")
    assert "a-server" not in text and "6 blocks, one host, one boot" in text


def test_an_incomplete_run_without_figures_is_marked(tmp_path: Path) -> None:
    truth = Truth(blocks=1, status="running", change=lambda row: [failed_trial(row, Code.TOOL_FAILED, "killed")])
    text = headline(tmp_path, truth)
    assert text.startswith("Incomplete run (3 of 3 trials): this run compares no requests per second: metal gave no")
    assert "metal lost 2 of 2 trials" in text


def test_limited_sides_are_open_upwards(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        on_metal = row["arm"] == Arm("metal")
        return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, *Role)) if on_metal else row]

    (comparison,) = analyse(load_run(make_run(tmp_path, Truth({"nginx": 0.5}, aa=False, change=change)))).comparisons
    judged = comparison.verdicts[THROUGHPUT.name]
    assert judged.is_at_least
    assert words.verdict_text(judged, SIDES).startswith("the guest serves at least ")


def answers(parent: Path, truth: Truth) -> list[str]:
    return [answer.text for answer in words.headline(analyse(load_run(make_run(parent, truth)))).answers]


def test_the_last_answer_is_the_cpu_of_a_request_on_its_host(tmp_path: Path) -> None:
    result = words.headline(analyse(load_run(make_run(tmp_path, Truth({"nginx": 0.9}, noise=0.001)))))
    cost = result.answers[-1]
    assert cost.metric == HOST_CPU
    assert re.fullmatch(r"The guest costs its host 7\d(\.\d)?% \(nginx\) more CPU per request than metal\.", cost.text)


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
    for text in answers(tmp_path, truth):
        assert text.endswith(".") and is_text(text)
        assert len(text.split()) <= 25, text


def test_equal_figures_are_answered_with_the_margin(tmp_path: Path) -> None:
    first, *_ = answers(tmp_path, Truth({"nginx": 1.0}, noise=0.0005))
    assert first == "The guest serves as many requests per second as metal, within 2%."


def test_differences_among_servers_are_counted(tmp_path: Path) -> None:
    first, *_ = answers(tmp_path, Truth({"nginx": 0.8, "lighttz": 1.3, "apache": 0.7}, noise=0.001))
    assert re.fullmatch(
        r"In 3 comparisons of requests per second, the guest is slower in 2 \([\d.]+% to [\d.]+%\),"
        r" faster in 1 \([\d.]+%\)\.",
        first,
    )


def test_a_decided_answer_comes_first(tmp_path: Path) -> None:
    """Limited by the client in every block the throughput stays open, and the tail does not."""

    def change(row: Row) -> list[Row]:
        return [row if row["load"].is_open else with_findings(row, *role_findings(Code.CLIENT_SATURATED, *Role))]

    truth = Truth({"nginx": 0.9}, loads=(closed_load(), rate_load(1000)), latency_ratio=2.0, noise=0.001, change=change)
    first, second, *_ = answers(tmp_path, truth)
    assert re.match(r"Under open load, p99 is [\d.]+× ", first)
    assert "the client, not the server, set the figure in every block" in second


def test_terms_of_the_headline_are_explained(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [
            with_findings(row, *role_findings(Code.CLIENT_SATURATED, *Role))
            if row["arm"].environment == "metal"
            else row
        ]

    bounded = analyse(load_run(make_run(tmp_path / "bound", Truth({"nginx": 0.5}, change=change))))
    assert {"At least", "A/A difference"} <= {item.word for item in words.explanations(bounded)}
    noisy = analyse(load_run(make_run(tmp_path / "noisy", Truth({"nginx": 0.99}, noise=0.1, aa=False))))
    assert {"Undecided", "A/A difference unknown"} <= {item.word for item in words.explanations(noisy)}
    assert "At least" not in {item.word for item in words.explanations(noisy)}


def test_a_ratio_over_two_decades_is_called_vague() -> None:
    wide = verdict(TAIL, Kind.SLOWER, estimate=Estimate(29.0, 2.05, 416.0))
    assert words.is_vague(wide)
    assert not words.is_vague(verdict(TAIL, Kind.SLOWER, estimate=Estimate(29.0, 10.2, 83.6)))
    assert not words.is_vague(verdict(THROUGHPUT, Kind.SLOWER, 0.9))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"estimate": Estimate(0.981, 0.976, 0.987)}, "0.981× (0.976 to 0.987)"),
        ({"estimate": Estimate(0.0151, 0.01062, 0.02164)}, "0.015× (0.011 to 0.022)"),
        ({"estimate": Estimate(0.181, 0.0387, 0.235), "open_low": True}, "0.181× (<0.039 to 0.235)"),
        ({"estimate": Estimate(2.31, 1.16, 8.41), "open_high": True}, "2.3× (1.16 to >8.4)"),
        ({"estimate": Estimate(43.0, 1.9e-35, 833_735_763.0)}, "43× (<0.001 to >10,000)"),
        ({"estimate": Estimate(43.0, 2e-4, 20_000.0), "open_low": True, "open_high": True}, "43× (<0.001 to >10,000)"),
        ({"estimate": Estimate(0.99)}, "0.99×"),
        ({"estimate": None}, ""),
        (
            {"estimate": Estimate(0.014), "blocks_range": Estimate(0.014, 1 / 1100, 0.1), "by_every_block": True},
            "each block 10 to 1,100×",
        ),
    ],
)
def test_a_ratio_in_a_column_is_short(keys: dict[str, object], text: str) -> None:
    assert words.column_text(verdict(THROUGHPUT, Kind.SLOWER, **keys)) == text  # type: ignore[arg-type]


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
    assert text.startswith("kvm-default serves 2.0× fewer requests per second than metal in 1 of 2 comparisons")
