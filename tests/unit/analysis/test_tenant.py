"""A guest whose host was not seen: what needs the host is not applicable, in figures and words."""

from pathlib import Path

import pytest

from tests.support.page_text import banners
from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.metric import CPU, HOST_CPU
from vmtoll.model.verdict import VerdictReason
from vmtoll.report import words
from vmtoll.report.html import render
from vmtoll.report.terminal import rows_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("metal", [True, False])
@pytest.mark.usefixtures("without_charts")
def test_what_needs_the_host_is_not_seen(tmp_path: Path, *, metal: bool) -> None:
    guests = ("kvm-default",) if metal else ("kvm-default", "kvm-multiqueue")
    run = load_run(make_run(tmp_path, Truth({"nginx": 0.9}, metal=metal, guests=guests, unseen_hosts=guests)))
    analysis = analyse(run)
    (comparison,) = analysis.comparisons
    verdict = comparison.verdicts["host_cpu"]
    assert (verdict.because, verdict.applies) == (VerdictReason.HOST_NOT_SEEN, False)
    assert comparison.verdicts["cpu"].blocks == 6
    shown = {one.metric for _, one in rows_of(analysis)}
    assert CPU in shown
    assert HOST_CPU not in shown
    page = render(run, analysis)
    assert analysis.unseen_hosts == guests
    assert "hardware" in banners(page)
    assert page.count(words.because_text(verdict, words.Sides("a", "b"))) == 1


@pytest.mark.usefixtures("without_charts")
def test_a_host_that_is_seen_has_no_banner(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth()))
    analysis = analyse(run)
    assert analysis.comparisons[0].verdicts["host_cpu"].applies
    assert analysis.unseen_hosts == ()
    assert "hardware" not in banners(render(run, analysis))
