"""What a terminal shows of a run: its whole text, its width, its order."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.committed_run import committed_runs
from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Truth, closed_load, make_run, share_load
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code
from vmtoll.model.metric import METRICS
from vmtoll.model.verdict import Doubt, Estimate, Kind, SideCounts, Verdict, VerdictReason
from vmtoll.report import words
from vmtoll.report.terminal import WIDTH, rows_of, summary

pytestmark = pytest.mark.slow

TWO_GUESTS = Truth({"nginx": 0.9}, guests=("kvm-2009", "kvm-default"))


def made(parent: Path, truth: Truth) -> Run:
    return load_run(make_run(parent, truth))


def text_of(run: Run) -> str:
    analysis = analyse(run)
    return summary(run, analysis, rows_of(analysis)).plain


def fixed(measured: Verdict, levels: tuple[float, float] | None, **keys: Any) -> Verdict:
    """A verdict with these figures of metal and guest, and without what the run's own trials left in doubt."""
    baseline, compared = (SideCounts(trials=6, used=6, level=level) for level in levels or (None, None))
    clean = replace(measured, doubts=(), notes=(), baseline=baseline, compared=compared, by_every_block=False)
    return replace(clean, **keys)


def test_a_run_is_an_answer_a_table_and_remarks(tmp_path: Path) -> None:
    """Of every kind of verdict the figures are set here, so that its text depends on none of the engine's numbers."""
    run = made(tmp_path / "every", Truth({"lighttpd": 1.0, "lighttz": 0.5, "nginx": 0.9}))
    analysis = analyse(run)
    steal = Doubt(Code.STEAL, 1, 2, 1.05)
    every_block = {"by_every_block": True, "blocks_range": Estimate(0.014, 1 / 1100, 0.1)}
    verdicts: dict[str, list[dict[str, Any]]] = {
        "throughput": [
            {"levels": (7707.0, 7700.0), "kind": Kind.EQUIVALENT, "estimate": Estimate(0.999, 0.991, 1.008)},
            {"levels": (5840.6, 81.8), "kind": Kind.SLOWER, "estimate": Estimate(0.014), **every_block},
            {"levels": (8071.0, 7259.0), "kind": Kind.SLOWER, "estimate": Estimate(0.9, 0.397, 0.909),
             "open_low": True, "doubts": (steal,)},
        ],
        "latency_p99": [
            {"levels": (1171.0, 980.4), "kind": Kind.FASTER, "estimate": Estimate(0.837, 0.801, 0.874)},
            {"levels": (1190.0, 29_400.0), "kind": Kind.UNDECIDED, "estimate": Estimate(24.7, 2e-5, 2e5),
             "because": VerdictReason.LIMIT},
            {"levels": None, "kind": Kind.NOT_JUDGED, "estimate": None, "because": VerdictReason.NO_FIGURE},
        ],
        "host_cpu": [
            {"levels": (52.7, 84.5), "kind": Kind.SLOWER, "estimate": Estimate(1.603, 1.592, 1.615)},
            {"levels": (41.1, 981.2), "kind": Kind.SLOWER, "estimate": Estimate(23.9, 17.0, 32.0), "open_high": True},
            {"levels": (44.6, 44.8), "kind": Kind.UNDECIDED, "estimate": Estimate(1.004, 0.97, 1.05),
             "because": VerdictReason.NOISE, "blocks_needed": 14},
        ],
    }  # fmt: skip
    comparisons = [
        replace(c, verdicts={**c.verdicts, **{m: fixed(c.verdicts[m], **rows[n]) for m, rows in verdicts.items()}})
        for n, c in enumerate(analysis.comparisons)
    ]
    analysis = replace(analysis, comparisons=tuple(comparisons), noise_floor=0.012)
    says_nothing = made(tmp_path / "nothing", Truth({"nginx": 0.9}))
    of_closed_loop = analyse(says_nothing)
    incomplete = made(tmp_path / "incomplete", Truth({"nginx": 0.9}, blocks=2, status="running"))
    planned = replace(incomplete, manifest=incomplete.manifest.model_copy(update={"trials_planned": 18}))
    shown = {
        "Every kind of verdict": summary(run, analysis, rows_of(analysis)).plain,
        "A figure that says nothing": summary(says_nothing, of_closed_loop, rows_of(of_closed_loop, ["tail"])).plain,
        "An incomplete run": text_of(planned),
        "No guest": text_of(made(tmp_path / "alone", Truth({"nginx": 0.9}, guests=()))),
        "Metal against a guest": text_of(made(tmp_path / "turned", Truth({"nginx": 0.5}, baseline="kvm-default"))),
        "Two guests": text_of(made(tmp_path / "two", TWO_GUESTS)),
    }
    assert_snapshot(SNAPSHOTS / "terminal.txt", {name: {"a run": text} for name, text in shown.items()})


def headings_and_labels(text: str) -> list[str]:
    """The first column of the table below its headings."""
    _, table, *_ = text.split("\n\n")
    return [line.split(" · A/A")[0].split("  ")[0] or line.split("  ")[1] for line in table.splitlines()[1:]]


def test_a_label_has_what_tells_rows_apart_as_far_as_there_is_room(tmp_path: Path) -> None:
    loads = (closed_load(10), closed_load(100))
    one = text_of(made(tmp_path / "one", Truth({"nginx": 0.9}, loads=loads)))
    assert headings_and_labels(one)[:3] == ["requests per second · nginx", "10 users", "100 users"]
    two = text_of(made(tmp_path / "two", Truth({"nginx": 0.9, "lighttz": 0.9}, loads=loads)))
    assert headings_and_labels(two)[:3] == ["requests per second", "lighttz · 10 users", "lighttz · 100 users"]
    long = "apache-proxy-lighttpd"
    wide = text_of(made(tmp_path / "wide", Truth({"nginx": 0.9, long: 0.9}, loads=loads)))
    assert headings_and_labels(wide)[:3] == ["requests per second · 10 users", long, "nginx"]


def test_servers_with_long_names_stay_apart(tmp_path: Path) -> None:
    names = [f"a-server-with-a-very-long-name-{end}" for end in ("one", "two")]
    text = text_of(made(tmp_path, Truth(dict.fromkeys(names, 0.9))))
    labels = headings_and_labels(text)[1:3]
    assert all("…" in label for label in labels)
    assert labels[0] != labels[1]
    assert max(map(len, text.splitlines())) <= WIDTH


def test_several_guests_are_in_the_labels(tmp_path: Path) -> None:
    text = text_of(made(tmp_path, TWO_GUESTS))
    assert headings_and_labels(text)[:3] == ["requests per second · nginx · 10 users", "on kvm-2009", "on kvm-default"]


def test_each_figure_has_rows_where_it_says_something(tmp_path: Path) -> None:
    analysis = analyse(made(tmp_path, Truth({"nginx": 0.9}, loads=(closed_load(), share_load(0.5)))))
    assert [v.metric.name for _, v in rows_of(analysis)] == [
        "throughput", "tail", "latency_p99", "host_cpu", "host_cpu"
    ]  # fmt: skip
    assert [v.metric.name for _, v in rows_of(analysis, ["cpu"])] == ["cpu", "cpu"]
    assert [v.metric.name for _, v in rows_of(analysis, with_inapplicable=True)] == [
        name for name in METRICS for _ in range(2)
    ]
    assert rows_of(analysis, servers=["lighttz"]) == []


@pytest.mark.parametrize("folder", committed_runs(), ids=lambda folder: folder.parent.name)
def test_no_line_of_a_committed_run_is_wider_than_a_terminal(folder: Path) -> None:
    run = load_run(folder)
    analysis = analyse(run)
    texts = [summary(run, analysis, rows_of(analysis, with_inapplicable=every)).plain for every in (False, True)]
    lines = [line for text in texts for line in text.splitlines()]
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if line != line.rstrip()]
    assert len(words.remarks(run, rows_of(analysis))) <= words.MOST_REMARKS


def test_long_names_of_environments_leave_room_for_the_table(tmp_path: Path) -> None:
    """Those of `vary` say factors and values; the line above the table names both."""
    guests = ("kvm-default", "kvm-default-kernel-cloud-amd64-cmdline-mitigations-off")
    text = text_of(made(tmp_path, Truth(guests=guests, metal=False, guest_control="kvm-default")))
    heading = next(line for line in text.splitlines() if "ratio (interval)" in line)
    assert heading.split() == ["baseline", "other", "ratio", "(interval)", "verdict"]
    assert f"{guests[0]} and {guests[1]}" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= WIDTH
