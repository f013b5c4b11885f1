"""Any environment may be the baseline: every ratio is of another arm to it, and the words name both."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.metric import HOST_CPU, THROUGHPUT
from vmtoll.model.trial import Arm, from_json, to_json
from vmtoll.model.verdict import Kind
from vmtoll.report import words
from vmtoll.report.html import render
from vmtoll.report.terminal import rows_of, summary

TWO_GUESTS = ("kvm-default", "kvm-multiqueue")


def text_of(run: Run, analysis: RunAnalysis) -> str:
    return str(summary(run, analysis, rows_of(analysis)))


def test_the_first_environment_is_the_baseline_where_there_is_no_metal(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth({"nginx": 0.9}, metal=False, guests=TWO_GUESTS)))
    assert (run.baseline, run.compared_arms) == (Arm("kvm-default"), [Arm("kvm-multiqueue")])
    (comparison,) = analyse(run).comparisons
    assert comparison.arms == [Arm("kvm-default"), Arm("kvm-multiqueue")]
    assert comparison.verdicts["throughput"].blocks == 6


def test_metal_is_compared_with_the_environment_that_the_experiment_names(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth({"nginx": 0.5}, baseline="kvm-default")))
    assert run.compared_arms == [Arm("metal")]
    analysis = analyse(run)
    (comparison,) = analysis.comparisons
    throughput = comparison.verdicts["throughput"]
    assert throughput.kind is Kind.FASTER
    assert throughput.estimate is not None
    assert throughput.estimate.value == pytest.approx(2.0, rel=0.05)
    answer, *_ = words.headline(analysis).answers
    assert (answer.metric, answer.kinds) == (THROUGHPUT, frozenset({Kind.FASTER}))


def slower(row: dict[str, object]) -> list[dict[str, object]]:
    factor = 0.5 if row["arm"] == Arm("kvm-multiqueue") else 1.0
    keys = ("throughput_rps", "crosscheck_throughput_rps")
    return [row | {key: float(str(row[key])) * factor for key in keys}]


WITHOUT_METAL = Truth({"nginx": 0.9}, metal=False, guests=TWO_GUESTS, change=slower)


def test_sentences_name_both_arms_where_there_is_no_metal(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, WITHOUT_METAL))
    analysis = analyse(run)
    answer, *_ = words.headline(analysis).answers
    assert (answer.metric, answer.kinds) == (THROUGHPUT, frozenset({Kind.SLOWER}))
    page = render(run, analysis)
    for text in (text_of(run, analysis), page.replace("the guest's whole kernel", "")):
        assert "metal" not in text.partition("<h2")[0].replace("var(--metal)", "").replace("--metal:", "")
        assert "the guest serves" not in text
    assert "kvm-multiqueue against kvm-default" in page


def test_several_guests_are_compared_with_the_one_that_is_named(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.9}, metal=True, guests=TWO_GUESTS, baseline="kvm-multiqueue")
    run = load_run(make_run(tmp_path, truth))
    analysis = analyse(run)
    assert [comparison.arm for comparison in analysis.comparisons] == [Arm("kvm-default"), Arm("metal")]
    assert {comparison.baseline for comparison in analysis.comparisons} == {Arm("kvm-multiqueue")}
    assert words.sentence(analysis).startswith("Metal serves "), "the one arm that differs is named"
    assert HOST_CPU.name in analysis.comparisons[0].verdicts


@pytest.mark.parametrize(
    ("guests", "said"),
    [
        (("a", "b", "c"), "Each of b and c serves as many requests per second as a, within 2%."),
        (("a", "b", "c", "d"), "Each of b, c and d serves as many requests per second as a, within 2%."),
        (("a", "b", "c", "d", "e"), "Each of 4 environments serves as many requests per second as a, within 2%."),
    ],
)
def test_a_sentence_over_several_arms_names_them(tmp_path: Path, guests: tuple[str, ...], said: str) -> None:
    run = load_run(make_run(tmp_path, Truth({"nginx": 1.0}, metal=False, guests=guests, blocks=10)))
    assert words.headline(analyse(run)).answers[0].text == said


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        (Truth(guests=("a", "b")), "metal* (a container) and 2 guests, "),
        (Truth(guests=("a", "container")), "metal* (a container) and 2 others, "),
        (Truth(metal=False, guests=("a", "b", "c")), "a and 2 others, "),
    ],
)
def test_the_terminal_counts_the_others(tmp_path: Path, truth: Truth, said: str) -> None:
    run = load_run(make_run(tmp_path, truth))
    assert said in text_of(run, analyse(run)).replace("\n", " ")


def test_several_arms_of_which_nothing_is_shown(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth({"nginx": 1.0}, metal=False, guests=("a", "b", "c"), noise=0.5)))
    assert words.headline(analyse(run)).answers[0].text == (
        "Requests per second against a, 2 comparisons: undecided in 2."
    )


def test_an_analysis_keeps_its_baseline_in_its_file(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth(baseline="kvm-default")))
    records = [from_json(to_json(record)) for record in run.records]
    again = replace(run, records=tuple(records))
    assert analyse(again).comparisons[0].baseline == Arm("kvm-default")
