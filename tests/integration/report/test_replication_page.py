"""replication.html, and what the report of a run shows of published claims and figures."""

import re
import shutil
from pathlib import Path

import pytest

from tests.integration.report.test_replication import CLAIMS, SMALL, small_servers
from tests.support.published_run import claim, make_published
from tests.support.synthetic_run import Truth, share_load
from vmtoll.analysis.published import points
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.claim import Outcome
from vmtoll.report.charts.claims import draw
from vmtoll.report.html import write_report
from vmtoll.report.notebook import execute
from vmtoll.report.replication import write_page


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The servers of 2003 with two of their workloads, and the report."""
    some = {name: SMALL[name] for name in ("page-4k-close", "page-4k-keep")}
    claims = [one | {"of": _page(one["of"]), "over": _page(one["over"])} for one in CLAIMS]
    run = small_servers(tmp_path_factory.mktemp("reported"), workloads=some, claims=claims)
    write_report(run, analyse(run))
    return run


def _page(side: dict[str, object]) -> dict[str, object]:
    return side | {"workload": "page-4k-close", "users": 100}


@pytest.fixture(scope="module")
def page(reported: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    folder = results / "small-servers-2003" / reported.path.name
    shutil.copytree(reported.path, folder)
    truth = Truth(
        {"nginx": 0.9, "lighttpd": 0.8}, loads=(share_load(0.3), share_load(0.7), share_load(1.1)), status="running"
    )
    peak = claim(metric="peak_goodput_rps", of={"workload": "ramp"}, published=[10000.0, 6000.0])
    ramp = {"kind": "ramp", "tool": "httperf", "deadline_ms": 5.0, "shares": [0.3, 0.7, 1.1]}
    ramp |= {"capacity": {"tool": "h2load", "users": 10}}
    sweep = make_published(
        tmp_path_factory.mktemp("ramp"), truth, [peak], workloads={"ramp": ramp}, name="rate-sweep-2006"
    )
    own = make_published(tmp_path_factory.mktemp("own"), Truth(), [])
    runs = [load_run(folder), sweep, own]
    return write_page([(run, analyse(run)) for run in runs], results / "replication.html")


def test_the_page_counts_the_outcomes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    heading = re.search(r"<h1>(.*?)</h1>", text)
    assert heading
    assert re.findall(r"\d+", heading[1]) == ["4", "2", "2", "0", "2"]  # claims, experiments, outcomes
    cells = re.findall(r'<td data-heading="outcome" class="outcome ([a-z]+)">', text)
    counts = {outcome: cells.count(outcome.value) for outcome in Outcome}
    assert counts == {Outcome.CONFIRMED: 2, Outcome.REFUTED: 0, Outcome.INCONCLUSIVE: 2}
    assert cells.count("none") == 1  # the server without a source has its row
    assert text.index('class="banner emulated"') < text.index("<h1>")
    assert text.count('class="banner incomplete"') == 1
    for words in (
        "Synthetic CPU, CPUs allowed: 1, 2.0 GiB",
        "sources.yml names no archive of &lt;thttpd&gt;",
        "An article",
        'id="e1-claims-1"',
        'id="e2-goodput-1"',
        'id="e3-throughput-1"',
        "3 blocks, 72 trials",
    ):
        assert words in text, words


def test_the_page_is_one_file_and_links_the_reports_in_its_folder(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b|@import|url\((?!#)", text)
    links = re.findall(r'href="([^"#]+)"', text)
    assert links == ["small-servers-2003/20260101T000000-synthetic/report.html"]
    assert (page.parent / links[0]).is_file()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_the_report_shows_claims_before_verdicts_and_the_points(reported: Run) -> None:
    text = (reported.path / "report.html").read_text(encoding="utf-8")
    assert text.index('id="claims"') < text.index('id="verdicts"')
    cells = re.findall(r'<td data-heading="outcome" class="outcome ([a-z]+)">', text)
    assert cells == ["confirmed", "inconclusive", "inconclusive", "none"]
    table = text.split('<table class="points">')[1].split("</table>")[0]
    assert len(re.findall(r'<tr class="[a-z-]+">', table)) == len(points(reported)) > 10


def test_the_report_of_our_own_experiment_has_no_claims(tmp_path: Path) -> None:
    run = make_published(tmp_path, Truth(), [])
    assert 'id="claims"' not in write_report(run, analyse(run)).read_text(encoding="utf-8")


def test_the_notebook_shows_claims_and_figures(reported: Run) -> None:
    text = execute("replication", reported.path).read_text(encoding="utf-8")
    missing = "the source of thttpd is not available"
    for words in ("inconclusive here", missing, "requests_per_second", "none of its figures"):
        assert words in text, words


def test_the_chart_has_each_ratio_that_has_figures(tmp_path: Path) -> None:
    claims = [
        claim("nginx is faster", published=[3000.0, 1000.0]),
        claim("at least 5,000", at_least=5000.0, published=[6000.0]),
        claim("without published figures", published=[]),
    ]
    run = make_published(tmp_path, Truth({"nginx": 0.5, "lighttpd": 0.5}, drift=0.0, aa=False), claims)
    (chart,) = draw(run, analyse(run))
    parts = chart.alt.split("; ")
    assert len(parts) == 2
    assert parts[0].startswith("1, nginx is faster: 3.00× published, 1.063× (1.058 to 1.068)")
    assert parts[1].startswith("3, without published figures: 1.06")
    assert chart.caption.endswith("prints no values.")
