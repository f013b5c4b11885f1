"""Pages of runs without metal do not mention it, and no page says "the guest" where there are two."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.page_text import words_of
from tests.support.synthetic_run import Row, Truth, closed_load, make_run, rate_load
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.campaign.effects import campaign_figures
from vmtoll.campaign.page import write_page as write_campaign
from vmtoll.campaign.store import partition
from vmtoll.capacity.objective import Demand
from vmtoll.capacity.planner import assess_capacity, default_slo
from vmtoll.publish.comparison import compare_runs
from vmtoll.report import capacity, comparison, html, replication, words
from vmtoll.report.explorer.collect import collect
from vmtoll.report.terminal import rows_of, summary

pytestmark = pytest.mark.slow
CHANGE_OF_METAL = {"metal-tuned": {"of": "metal", "apply": "true"}}
CASES = {
    "two guests": Truth(metal=False, guests=("kvm-default", "kvm-multiqueue")),
    "three guests": Truth(metal=False, guests=("kvm-default", "kvm-multiqueue", "kvm-net")),
    "a guest against a container": Truth(metal=False, guests=("container", "kvm-default")),
    "a container against metal": Truth(guests=("container",)),
    "metal against a change of it": Truth(guests=("metal-tuned",), changes=CHANGE_OF_METAL),
}
# What a page explains of every run: what a figure is, and words of the glossary.
EXPLANATIONS = ("What the physical machine spent:", "What ran the guest's code:", "What the guest's host runs on:")


def at_half(guests: tuple[str, ...]) -> Truth:
    """The last environment serves half as much."""

    def change(row: Row) -> list[Row]:
        factor = 0.5 if row["arm"].environment == guests[-1] else 1.0
        return [row | {name: value * factor for name, value in row.items() if name.endswith("throughput_rps")}]

    return Truth(change=change)


def made(folder: Path, truth: Truth) -> Run:
    loads = (closed_load(), rate_load(500))
    return load_run(make_run(folder, replace(truth, loads=loads, change=at_half(truth.guests).change)))


def said(folder: Path, run: Run, again: Run) -> Iterator[str]:
    """Every text of pages and commands on these two runs, without the glossaries."""
    analysis = analyse(run)
    report = html.render(run, analysis).partition('id="reading"')[0]
    yield from words_of(report)
    yield from re.findall(r"<(?:text|title|desc)[^>]*>([^<]*)", report)  # of its pictures
    yield str(summary(run, analysis, rows_of(analysis, with_inapplicable=True)))
    yield words.sentence(analysis)
    yield from words.remarks(run, rows_of(analysis))
    yield from capacity.lines(assess_capacity(run, default_slo(run), Demand(3000)))
    yield from comparison.lines(compare_runs(run, again, 0))
    partition(run.path, folder / "data", "spring", "one")
    page = write_campaign(campaign_figures(str(folder / "data")), folder / "campaign.html")
    yield from words_of(page.read_text(encoding="utf-8").partition('aria-labelledby="reading"')[0])
    page = replication.write_page([(run, analysis)], folder / "replication.html")
    yield from words_of(page.read_text(encoding="utf-8").partition('aria-labelledby="reading"')[0])
    yield from (json.dumps(entry, default=str) for entry in collect(folder / "results"))


@pytest.mark.parametrize("name", CASES)
def test_pages_name_what_was_measured_and_nothing_else(tmp_path: Path, name: str) -> None:
    truth = CASES[name]
    run, again = made(tmp_path, truth), made(tmp_path / "again", replace(truth, seed=2))
    lines = [line for line in said(tmp_path, run, again) if not any(text in line for text in EXPLANATIONS)]
    assert any(f"{truth.guests[-1]} serves " in line for line in lines) or name == "three guests"
    if not run.metal:
        assert [line for line in lines if re.search(r"\bmetal\b", line, re.IGNORECASE)] == []
    if len(run.guests) != 1:
        assert [line for line in lines if re.search(r"\bthe guest\b", line, re.IGNORECASE)] == []
