"""report.html is one file, says what it must, and every figure has words."""

import json
import re
import shutil
from collections import Counter
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup

from tests.support.synthetic_run import Row, Truth, failed_trial, make_run, role_findings, with_findings
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Role
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.report import charts
from vmtoll.report.html import write_report
from vmtoll.report.page import TERMS, link_terms
from vmtoll.report.plot import log_ticks
from vmtoll.report.words import GLOSSARY, REPORT_TERMS, headline, wait_text

pytestmark = pytest.mark.slow

SERVERS = {"lighttz": 0.045, "nginx": 0.05, "lighttpd": 0.06, "apache-prefork": 0.11}


class Page(HTMLParser):
    """Collects what the tests ask about."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input", "use", "path", "line", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def report_of(path: Path) -> Path:
    run = load_run(path)
    return write_report(run, analyse(run))


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    def change(row: Row) -> list[Row]:
        if row["arm"] != Arm("kvm-default"):
            return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, Role.PRIMARY))]
        if row["server"] == "lighttpd" and row["block"] == 1:
            return [failed_trial(row, Code.WRONG_BODY, "<script>alert(1)</script>")]
        return [row]

    truth = Truth(SERVERS, accelerator=Accelerator.TCG, histograms=True, change=change, latency_ratio=20, cpu_ratio=15)
    page = report_of(make_run(tmp_path_factory.mktemp("emulated"), truth))
    return page, page.read_text(encoding="utf-8")


def test_is_one_small_file_without_network(emulated: tuple[Path, str]) -> None:
    page, text = emulated
    assert page.name == "report.html"
    assert page.stat().st_size < 600_000
    assert "://" not in text
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b|@import|url\((?!#)", text)
    for _, attributes in Page(text).tags:
        for name in ("href", "src", "xlink:href", "srcset", "data", "action"):
            assert str(attributes.get(name, "#")).startswith("#")


def test_is_well_formed_with_unique_ids(emulated: tuple[Path, str]) -> None:
    page = Page(emulated[1])
    assert page.wrong == []
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="|url\()#([^")]+)', emulated[1])
    assert set(used) <= set(ids)


def test_every_figure_has_a_text_alternative(emulated: tuple[Path, str]) -> None:
    text = emulated[1]
    figures = re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL)
    assert len(figures) == 13
    for figure in figures:
        assert 'role="img"' in figure
        labels = re.search(r'aria-labelledby="(\S+) (\S+)"', figure)
        assert labels
        for label in labels.groups():
            assert re.search(rf'id="{label}">[^<]{{10,}}<', figure)


def test_figures_follow_the_pages_colours(emulated: tuple[Path, str]) -> None:
    figures = "".join(re.findall(r"<svg.*?</svg>", emulated[1], flags=re.DOTALL))
    assert "currentColor" in figures
    assert "var(--metal)" in figures
    assert set(re.findall(r"#[0-9a-fA-F]{6}\b", figures)) == set()


def test_states_emulation_and_its_evidence_at_the_top(emulated: tuple[Path, str]) -> None:
    text = emulated[1]
    assert text.index('class="banner emulated"') < text.index("<h1>")
    assert text.index('class="banner embedded"') < text.index("<h1>")
    rows = re.findall(r'<tr class="([a-z-]+)"><th scope="row"><code>', text)
    assert set(rows) == {Code.CLIENT_SATURATED.value, Code.WRONG_BODY.value}
    assert '<details class="undeclared"' not in text
    assert "alert(1)&lt;/script&gt;" in text


def test_the_first_screen_has_the_answer_its_evidence_and_one_picture(emulated: tuple[Path, str]) -> None:
    page, text = emulated
    first = text.partition('<header class="answer">')[2].partition("</header>")[0]
    result = headline(analyse(load_run(page.parent)))
    assert f"<h1>{escape(result.answers[0].text)}</h1>" in first
    assert first.count("<svg") == 1 and text.count('id="overhead-1"') == 1
    (evidence, *_) = re.findall(r'<p class="evidence"><strong>[^<]+</strong> (.*)</p>', first)
    assert evidence.startswith(f"{link_terms(', '.join(result.basis))}.")


def test_terms_link_to_the_glossary(emulated: tuple[Path, str]) -> None:
    text = emulated[1]
    entries = set(re.findall(r'<dt id="(term-[a-z0-9-]+)">', text))
    assert {entry.removeprefix("term-") for entry in entries} == set(REPORT_TERMS)
    assert set(TERMS) <= set(GLOSSARY)
    explained = text.partition('<dl class="explained">')[2].partition("</dl>")[0]
    explained_terms = set(re.findall(r'<dt><a href="#term-[^"]+">([^<]+)</a></dt>', explained))
    assert explained_terms == {"A/A difference"}
    assert link_terms("an A/A difference of 2% <b>, A/A difference") == (
        'an <a href="#term-noise-floor">A/A difference</a> of 2% &lt;b&gt;, A/A difference'
    )
    markup = Markup('<h3>The p99</h3><img alt="p99"><a href="#x">its p99</a><p>p99</p>')
    assert link_terms(markup, glossary="g.md").partition("<p>")[::2] == (
        '<h3>The p99</h3><img alt="p99"><a href="#x">its p99</a>',
        '<a href="g.md#term-p99">p99</a></p>',
    )


def test_verdicts_are_classes_by_kind(emulated: tuple[Path, str]) -> None:
    table = emulated[1].split('id="verdicts"')[1].split("</table>")[0]
    kinds = re.findall(r'<td data-heading="[^"]+" class="([a-z]+)">', table)
    assert Counter(kinds) == {"slower": 16}


def test_is_the_same_when_repeated(emulated: tuple[Path, str]) -> None:
    page, text = emulated
    assert report_of(page.parent).read_text(encoding="utf-8") == text


@pytest.mark.usefixtures("without_charts")
def test_kvm_run_has_no_emulation_banner(tmp_path: Path) -> None:
    undeclared = [{"fact": "sysctls: net.core.somaxconn", "values": {"metal": "4096", "kvm-default": "128"}}]
    truth = Truth({"nginx": 0.9}, link="100mbit", undeclared=undeclared, aa=False)
    text = report_of(make_run(tmp_path, truth)).read_text(encoding="utf-8")
    assert 'class="banner emulated"' not in text
    assert "100mbit (100 Mbit/s)" in text
    assert '<details class="undeclared" open>' in text
    assert "net.core.somaxconn" in text
    assert 'class="stack findings"' not in text


@pytest.mark.parametrize("status", ["running", "complete"])
def test_a_run_without_any_figure_still_has_a_page(tmp_path: Path, status: str) -> None:
    truth = Truth(change=lambda row: [failed_trial(row, Code.TOOL_FAILED, "killed")], blocks=1, status=status)
    text = report_of(make_run(tmp_path, truth)).read_text(encoding="utf-8")
    assert "<svg" not in text.split('id="figures"')[1]
    assert ('class="banner incomplete"' in text) == (status == "running")
    assert re.search(r'class="not-judged"><strong>not judged</strong>[^<]*tool-failed', text)


def test_a_broken_histogram_is_named(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth(blocks=1, histograms=True))
    broken = sorted((run_dir / "histograms").glob("*.hdr"))[0]
    broken.write_bytes(b"HISTFAAAbroken")
    with pytest.raises(ValueError, match=broken.name):
        report_of(run_dir)


def test_a_chart_is_added_by_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    source = Path(charts.__file__).parent / "slopes.py"
    shutil.copy(source, folder / "one_more.py")
    monkeypatch.setattr(charts, "__path__", [*charts.__path__, str(folder)])
    text = report_of(make_run(tmp_path, Truth(blocks=1))).read_text(encoding="utf-8")
    assert '<figure id="one_more-1">' in text


def test_log_ticks_are_few_and_round() -> None:
    assert log_ticks(300, 13000) == [500, 1000, 2000, 5000, 10000]
    assert log_ticks(1, 1e9) == [10.0**e for e in range(10)]


def inside_the_server(text: str) -> list[list[str]]:
    """The rows of the table of the server's own times: label, environment, cells."""
    table = text.partition("<h3>Inside the server</h3>")[2].partition("</table>")[0].partition("<tbody>")[2]
    return [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in table.split("<tr>")[1:]]


@pytest.mark.usefixtures("without_charts")
def test_server_times_are_shown_with_the_clients_times(tmp_path: Path) -> None:
    """Under the tool whose latencies are shown: siege logs none, so the cross-check; only of servers that tell."""

    def change(row: Row) -> list[Row]:
        if row["server"] != "lighttz":
            return [row]
        figures = {"server_time_p50_us": 1.0, "crosscheck_server_time_p50_us": 12.0, "steal_pct": 0.5}
        figures |= {"crosscheck_server_time_p99_us": 40.0, "crosscheck_server_time_p999_us": 900.0}
        figures |= {f"crosscheck_server_loop_lag_{name}_us": 50.0 for name in ("p50", "p99", "p999")}
        return [row | figures]

    text = report_of(make_run(tmp_path, Truth(SERVERS, change=change))).read_text(encoding="utf-8")
    assert Page(text).wrong == []
    rows = inside_the_server(text)
    assert [row[:2] for row in rows] == [
        ["lighttz", arm] for arm in ("metal (a container)", "metal (a container) again (A/A)", "kvm-default")
    ]
    for row in rows:
        assert len(row) == 12 and row[5:] == ["12", "40", "900", "50", "50", "50", "0.5"]
        assert all(float(cell.replace(",", "")) > 0 for cell in row[2:5]), "what the client saw"


@pytest.mark.usefixtures("without_charts")
def test_waits_for_a_cpu_are_shown_with_a_sentence_on_the_longest(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        figures = {"server_wait_us_per_request": 0.5, "server_cpu_us_per_request": 50.0}
        if row["arm"].environment != "metal":
            figures |= {"host_vcpu_wait_us_per_request": 21.0, "host_vcpu_cpu_us_per_request": 47.0}
        return [row | figures]

    text = report_of(make_run(tmp_path, Truth({"nginx": 1.0}, change=change))).read_text(encoding="utf-8")
    assert Page(text).wrong == []
    times_us: dict[str, float | None] = {"server_wait_us_per_request": 0.5, "server_cpu_us_per_request": 50.0}
    times_us |= {"host_vcpu_wait_us_per_request": 21.0, "host_vcpu_cpu_us_per_request": 47.0}
    longest = wait_text(times_us, "kvm-default")
    table = text.partition("<h3>Waiting for a CPU</h3>")[2].partition("</table>")[0].partition("<tbody>")[2]
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in table.split("<tr>")[1:]]
    assert [row[1:] for row in rows] == [
        ["metal (a container)", "0.5", "–", "–", "–", "–", ""],
        ["metal (a container) again (A/A)", "0.5", "–", "–", "–", "–", ""],
        ["kvm-default", "0.5", "21", "–", "–", "–",
         longest],
    ]  # fmt: skip


def test_no_table_of_waits_where_none_were_recorded(emulated: tuple[Path, str]) -> None:
    assert "<h3>Waiting for a CPU</h3>" not in emulated[1]


def test_no_table_without_server_times(emulated: tuple[Path, str]) -> None:
    assert "Inside the server" not in emulated[1]


@pytest.mark.usefixtures("without_charts")
def test_a_server_that_was_skipped_keeps_its_row(tmp_path: Path) -> None:
    run = make_run(tmp_path, Truth(SERVERS))
    meta = json.loads((run / "run.json").read_text())
    meta["skipped"] = [
        {"server": "thttpd", "why": "source not available: thttpd 2.29 is in no distribution"},
        {"server": "caddy", "workload": "tls-resumed", "why": "does not resume TLS sessions"},
    ]
    (run / "run.json").write_text(json.dumps(meta))
    text = report_of(run).read_text(encoding="utf-8")
    row = re.search(r'<tr><th scope="row">thttpd</th>.*?</tr>', text)
    assert row and "not available: thttpd 2.29" in row[0]
    scenario = re.search(r'<tr><th scope="row">caddy, tls-resumed</th>.*?</tr>', text)
    assert scenario and "not resume TLS" in scenario[0]
    assert Page(text).wrong == []


@pytest.mark.usefixtures("without_charts")
def test_banners_know_how_many_guests_there_are(tmp_path: Path) -> None:
    for metal, said in ((True, "Software emulated the guest."), (False, "Software emulated the guests.")):
        guests = ("kvm-default",) if metal else ("kvm-2009", "kvm-default")
        truth = Truth({"nginx": 0.5}, blocks=2, guests=guests, metal=metal, accelerator=Accelerator.TCG)
        assert said in report_of(make_run(tmp_path / str(metal), truth)).read_text()
