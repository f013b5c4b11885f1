"""Starts of guests: in the analysis, on the page, in their chart, and on the terminal."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.page_text import section, words_of
from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Truth, make_run, rate_load
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import from_json, to_json
from vmtoll.model.errors import LoadError
from vmtoll.model.first_answer import GuestStart, StartRecord, UnitWait, Way
from vmtoll.model.trial import Accelerator
from vmtoll.model.verdict import Estimate, StartFigures
from vmtoll.report import charts, html, terminal, words
from vmtoll.runs.folder import STARTS

PARTS = {"host": 1.0, "kernel": 2.0, "systemd": 5.0, "server": 0.0}
WAITS = (UnitWait(unit="slow.service", begin_s=3.0, length_s=5.0), UnitWait(unit="a.mount", begin_s=2.5, length_s=0.2))


def guest(name: str, answer_s: float | None, *, boot: bool = True) -> GuestStart:
    """A guest whose parts add up to its answer."""
    parts = {}
    if answer_s:
        rest_s = answer_s - sum(PARTS.values())
        parts = PARTS | {"server": PARTS["server"] + rest_s} if boot else {"hypervisor": 0.1, "guest": answer_s - 0.1}
    network_s = answer_s and answer_s - 0.5
    return GuestStart(
        guest=name, answer_s=answer_s, network_s=network_s, command_s=0.1, parts=parts, waits=WAITS if boot else (),
        error_s=0.0004, gap_s=0.031,
    )  # fmt: skip


def start(block: int, environment: str, way: Way, guests: tuple[GuestStart, ...], failure: str = "") -> StartRecord:
    return StartRecord(
        block=block, order=1, environment=environment, accelerator=Accelerator.KVM, server="nginx", way=way,
        at_once=len(guests) or 1, started_at="2026-01-01T00:00:00+00:00", guests=guests, failure=failure,
    )  # fmt: skip


def records() -> list[StartRecord]:
    """Six blocks: kvm-default boots in 10 s and a little more each time, kvm-tuned 2 s faster, two at once slower."""
    made = []
    for block in range(1, 7):
        one_s = 10 + block / 10
        made += [
            start(block, "kvm-default", "boot", (guest("a1", one_s),)),
            start(block, "kvm-tuned", "boot", (guest("b1", one_s - 2),)),
            start(block, "kvm-default", "boot", (guest("a1", 15.0), guest("a2", 18.0))),
            start(block, "kvm-default", "resume", (guest("a1", 0.25, boot=False),)),
        ]
    return [*made, start(7, "kvm-default", "boot", (guest("a1", None),), "no answer of a1 within 300 s")]


def started_run(parent: Path, truth: Truth) -> Run:
    """A synthetic run with these starts."""
    folder = make_run(parent, truth)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["experiment"]["first_answer"] = {"of": ["boot", "resume"], "at_once": [1, 2]}
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "first-answers.jsonl").write_bytes(b"".join(STARTS.line(record) + b"\n" for record in records()))
    return load_run(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    truth = Truth(guests=("kvm-default", "kvm-tuned"), loads=(rate_load(100),), aa=False)
    return started_run(tmp_path_factory.mktemp("starts"), truth)


def figures(run: Run) -> dict[tuple[str, str, int], StartFigures]:
    return {(each.environment, each.way, each.at_once): each for each in analyse(run).first_answers or ()}


def test_each_start_has_its_mean_its_parts_and_its_difference(run: Run) -> None:
    found = figures(run)
    assert list(found) == [
        ("kvm-default", "boot", 1), ("kvm-tuned", "boot", 1), ("kvm-default", "boot", 2), ("kvm-default", "resume", 1),
    ]  # fmt: skip
    boot = found["kvm-default", "boot", 1]
    assert (boot.blocks, boot.failed, boot.more_s) == (6, 1, None)
    assert boot.all_s is not None
    assert boot.all_s.low is not None
    assert 10 < boot.all_s.low < boot.all_s.value == pytest.approx(10.35)
    assert boot.first_s == boot.all_s
    assert sum(part.value for part in boot.parts.values()) == pytest.approx(boot.all_s.value)
    assert [(wait.unit, round(wait.length_s.value, 9)) for wait in boot.waits] == [
        ("slow.service", 5.0),
        ("a.mount", 0.2),
    ]
    two = found["kvm-default", "boot", 2]
    assert (two.first_s, two.all_s) == (Estimate(15, 15, 15), Estimate(18, 18, 18))
    assert two.parts["server"].value == pytest.approx(10.0), "of the guest that answers last"
    tuned = found["kvm-tuned", "boot", 1]
    assert tuned.against == "kvm-default"
    assert tuned.more_s is not None
    assert tuned.more_s.value == pytest.approx(-2)
    stored = from_json(to_json(analyse(run))).first_answers
    assert stored is not None
    assert stored[0].parts["systemd"].value == 5


def test_the_words_of_starts(run: Run) -> None:
    analysis = analyse(run)
    page = html.render(run, analysis)
    text = str(terminal.summary(run, analysis, terminal.rows_of(analysis)))
    ((_, chart),) = charts.draw_all(run, analysis, only=["first_answers"])
    sentences = [words.first_answer_text(start) for start in analysis.first_answers or ()]
    lines = [line for start in analysis.first_answers or () for line in words.start_lines(start)]
    sections = {
        "Starts": {
            "on the page": words_of(section(page, "first-answers")),
            "their chart": chart.alt,
            "on the terminal": lines,
            "that all failed": words.first_answer_text(all_failed(run)),
        }
    }
    assert_snapshot(SNAPSHOTS / "first-answers.txt", sections)
    assert all(sentence in page for sentence in sentences)
    assert all(" ".join(line.split()) in " ".join(text.split()) for line in lines)


@pytest.mark.usefixtures("without_charts")
def test_a_run_of_one_guest_begins_with_its_start(tmp_path: Path) -> None:
    run = started_run(tmp_path, Truth(metal=False, guests=("kvm-default",), loads=(rate_load(100),), aa=False))
    analysis = analyse(run)
    sentence = words.first_answer_text((analysis.first_answers or ())[0])
    assert f"<h1>{sentence}</h1>" in html.render(run, analysis)
    text = str(terminal.summary(run, analysis, []))
    assert text.startswith(sentence) and text.count(sentence) == 1


def all_failed(run: Run) -> StartFigures:
    boot = figures(run)["kvm-default", "boot", 1]
    return replace(boot, all_s=None, first_s=None, blocks=0, failed=2, parts={})


def test_starts_that_all_failed_have_no_longest_part(run: Run) -> None:
    assert words.longest_text(all_failed(run)) == ""


@pytest.mark.usefixtures("without_charts")
def test_a_run_without_starts_has_none(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth()))
    analysis = analyse(run)
    assert analysis.first_answers is None
    assert b'"first_answers"' not in to_json(analysis)
    assert 'id="first-answers"' not in html.render(run, analysis)


def test_a_line_that_is_cut_off_does_not_count_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "first-answers.jsonl"
    line = STARTS.line(records()[0])
    file.write_bytes(line + b"\n" + line[:40])
    assert STARTS.read(tmp_path) == records()[:1]
    file.write_bytes(b'{"block": 1}\n')
    with pytest.raises(LoadError, match=r"first-answers\.jsonl: line 1, "):
        STARTS.read(tmp_path)
