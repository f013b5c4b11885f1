"""What the report of a run says around its figures: notes above the answer, what it rests on, equality, capacity."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from tests.support.page_text import banners_text, section, words_of
from tests.support.planned import truth as sweep
from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Row, Truth, make_run
from tests.unit.analysis.test_equality import AES, run_of
from tests.unit.analysis.test_until import look
from tests.unit.analysis.test_until import run_of as run_with_looks
from tests.unit.capacity.test_consolidation import made as consolidated
from tests.unit.capacity.test_planner import searched
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator, ClientPlace
from vmtoll.report import charts
from vmtoll.report.html import render
from vmtoll.report.words import ending_text, looks_text

pytestmark = pytest.mark.slow

SHORT = Truth({"nginx": 0.9}, blocks=2)
UNDECLARED = [{"fact": "sysctls: net.core.somaxconn", "values": {"metal": "4096", "kvm-default": "128"}}]
NOTED = {
    "native": SHORT,
    "nested KVM": replace(SHORT, hardware=Hardware.NESTED),
    "KVM on emulated hardware": replace(SHORT, hardware=Hardware.EMULATED),
    "KVM on unknown hardware": replace(SHORT, hardware=Hardware.UNKNOWN),
    "emulated, by another module": replace(SHORT, accelerator=Accelerator.TCG, kvm_modules=("kvm_pvm",)),
    "emulated on emulated hardware": replace(SHORT, accelerator=Accelerator.TCG, hardware=Hardware.EMULATED),
    "a tenant": replace(SHORT, unseen_hosts=("kvm-default",)),
    "a tenant of two hosts": replace(
        SHORT, metal=False, guests=("kvm-default", "kvm-multiqueue"), unseen_hosts=("kvm-default", "kvm-multiqueue")
    ),
    "incomplete": replace(SHORT, status="running"),
}


def local(row: Row) -> list[Row]:
    return [row | {"client": ClientPlace.LOCALHOST.value}]


TWO = Truth({"nginx": 0.05, "lighttz": 0.04}, accelerator=Accelerator.TCG)


def part_of_answer(html: str) -> list[str]:
    return words_of(html.partition('<header class="answer">')[2].partition("</header>")[0])


def page(run: Run) -> str:
    return render(run, analyse(run))


def test_the_words_around_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pages with the chart beside their answer alone, because the others take most of a page's time."""
    draw_all = charts.draw_all
    monkeypatch.setattr(charts, "draw_all", lambda run, analysis: draw_all(run, analysis, [charts.FIRST[:-2]]))

    def made(name: str, truth: Truth) -> str:
        return page(load_run(make_run(tmp_path / name, truth)))

    def part(html: str, name: str) -> list[str]:
        return words_of(section(html, name))

    def open_facts(html: str) -> list[str]:
        return list(takewhile(lambda line: not line.startswith("Declared differences"), part(html, "equality")))

    ended = run_with_looks(
        tmp_path / "ended", Truth(), [look(6, 0.6).model_copy(update={"decided": 4, "narrow": 1})], stopped="narrow"
    )
    shared = consolidated(tmp_path / "shared", (2, 4), accelerator=Accelerator.TCG)
    a_search = searched(tmp_path / "search", sweep(guests=(), blocks=1))
    sections: dict[str, dict[str, Iterable[str]]] = {
        "Above the answer": {name: banners_text(made(f"noted {name}", truth)) for name, truth in NOTED.items()},
        "The answer": {"with its evidence": part_of_answer(made("answer", TWO))},
        "What this rests on": {
            "a slow link, and no A/A control": part(made("link", replace(SHORT, link="100mbit", aa=False)), "rests"),
            "a client on the machine": part(made("local", replace(SHORT, change=local)), "rests"),
        },
        "Were the two sides equal?": {
            "a difference": open_facts(made("differ", replace(SHORT, undeclared=UNDECLARED))),
            "seen on one side only": open_facts(page(load_run(run_of(tmp_path / "one", AES, None)))),
            "none": open_facts(made("none", SHORT)),
        },
        "Verdicts": {
            "of a search": part(page(a_search), "verdicts"),
            "of one server on nested KVM": part(made("nested", replace(SHORT, hardware=Hardware.NESTED)), "verdicts"),
        },
        "Capacity": {"of guests that share a host alone": part(page(shared), "capacity")},
        "How a run ended": {"its end": ending_text(ended.manifest), "its looks": looks_text(ended.manifest)},
    }
    assert_snapshot(SNAPSHOTS / "report-page.txt", sections)
