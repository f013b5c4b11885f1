"""The explorer's data: every run is there, with its figures, its warnings or its error."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.committed_run import DEMO, linked
from tests.support.explorer_runs import add_run
from tests.support.synthetic_run import Row, Truth, closed_load, rate_load, role_findings, with_findings
from vmtoll.model.errors import LoadError
from vmtoll.model.finding import Code, Role
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Kind
from vmtoll.report.explorer import write_site
from vmtoll.report.explorer.collect import collect


def test_a_row_carries_the_figures_that_the_verdict_compares(tmp_path: Path) -> None:
    add_run(tmp_path, Truth({"nginx": 0.9}, noise=0.0005), "web", "20260101T000000Z-aaaa")
    (run,) = collect(tmp_path)
    assert run["id"] == "web/20260101T000000Z-aaaa"
    assert run["accelerators"] == {"metal": "none", "metal#2": "none", "kvm-default": "kvm"}
    metal, again, guest = run["rows"]
    assert [row["environment"] for row in run["rows"]] == ["metal", "metal#2", "kvm-default"]
    assert guest["trials"] == {"valid": 6, "suspect": 0, "invalid": 0}
    ratio = guest["figures"]["throughput"]["median"] / metal["figures"]["throughput"]["median"]
    assert ratio == pytest.approx(0.9, rel=0.02)
    assert guest["verdicts"]["throughput"]["kind"] == Kind.SLOWER
    assert re.fullmatch(r"0\.\d+× \(0\.\d+ to 0\.\d+\)", guest["verdicts"]["throughput"]["estimate"])
    assert metal["verdicts"] == again["verdicts"] == {}
    assert "host_cpu" in guest["figures"]
    assert "host_cpu" not in metal["figures"]


def test_an_open_loop_has_a_tail_and_no_verdict_on_throughput(tmp_path: Path) -> None:
    def some_fail(row: Row) -> list[Row]:
        open_loop_guest = row["load"].is_open and row["arm"] == Arm("kvm-default")
        return [row | {"successful": row["requests"] * 99 // 100}] if open_loop_guest else [row]

    add_run(tmp_path, Truth(loads=(closed_load(), rate_load(2000)), change=some_fail), "web", "20260101T000000Z-aaaa")
    rows = {(r["tool"], r["environment"]): r for r in collect(tmp_path)[0]["rows"]}
    users, tail, metal = rows["siege", "kvm-default"], rows["vegeta", "kvm-default"], rows["vegeta", "metal"]
    assert tail["load"] == "2,000 req/s"
    assert "tail" not in users["figures"] | users["verdicts"]
    assert "latency_p99" not in tail["figures"] | tail["verdicts"]
    assert tail["figures"]["tail"]["failed"] == pytest.approx(0.01)
    assert metal["figures"]["tail"]["failed"] == 0
    assert re.search(r"\(.+ to .+\)", tail["verdicts"]["tail"]["estimate"])
    assert tail["verdicts"]["throughput"]["kind"] == Kind.NOT_JUDGED
    assert tail["verdicts"]["throughput"]["estimate"] == ""


def test_the_committed_run_is_marked_emulated(tmp_path: Path) -> None:
    run = next(r for r in collect(linked(tmp_path)) if r["id"] == f"demo/{DEMO.name}")
    assert run["emulated"]
    assert run["complete"]
    assert run["report"] == f"runs/demo/{DEMO.name}/report.html"
    assert run["accelerators"]["kvm-default"] == "tcg"
    rows = {(row["server"], row["workload"], row["environment"]): row for row in run["rows"]}
    assert len(rows) == len(run["rows"]) == 10
    metal = rows["nginx", "document-siege", "metal"]
    premises = metal["premises"]
    assert premises["workload users"] == 1
    assert premises["site seed"] == 2009
    assert premises["version of siege"].startswith("4.1")
    assert premises["server version"]
    assert premises["accelerator"] == "none"
    assert metal["figures"]["throughput"] == {"median": 6406.87, "source": "siege", "failed": 0.0}
    assert rows["nginx", "site-steady", "metal"]["figures"]["tail"]["source"] == "oha"


def test_a_figure_is_the_crosschecks_where_the_clients_first_tool_was_saturated(tmp_path: Path) -> None:
    def saturated(row: Row) -> list[Row]:
        return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, Role.PRIMARY))]

    add_run(tmp_path, Truth(change=saturated), "web", "20260101T000000Z-aaaa")
    add_run(tmp_path, Truth(), "web", "20260102T000000Z-bbbb")
    calm, busy = collect(tmp_path)
    assert {row["figures"]["throughput"]["source"] for row in calm["rows"]} == {"siege"}
    assert {row["figures"]["throughput"]["source"] for row in busy["rows"]} == {"h2load"}


def test_runs_are_listed_newest_first_and_a_broken_one_with_its_error(tmp_path: Path) -> None:
    add_run(tmp_path, Truth(blocks=1, status="running"), "web", "20260101T000000Z-aaaa")
    broken = add_run(tmp_path, Truth(blocks=1), "web", "20260102T000000Z-bbbb")
    (broken / "trials.jsonl").write_text('{"block": 1}\n')
    add_run(tmp_path, Truth(blocks=1), "other", "20260103T000000Z-cccc")
    (tmp_path / "latest").symlink_to(tmp_path / "other" / "20260103T000000Z-cccc")
    runs = collect(tmp_path)
    assert [r["id"][-4:] for r in runs] == ["cccc", "bbbb", "aaaa"]
    assert runs[1]["error"].startswith("trials.jsonl: line 1, key run_id")
    assert runs[1]["rows"] == []
    assert not runs[2]["complete"]


def test_a_run_without_any_trial_has_no_rows(tmp_path: Path) -> None:
    run_dir = add_run(tmp_path, Truth(blocks=1, status="running"), "web", "20260101T000000Z-aaaa")
    (run_dir / "trials.jsonl").write_text("")
    (run,) = collect(tmp_path)
    assert run["error"] is None
    assert run["rows"] == []
    assert not run["complete"]


def test_the_page_is_one_file_and_the_same_bytes_when_repeated(tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(DEMO, results / "demo" / DEMO.name, ignore=shutil.ignore_patterns("raw", "samples"))
    hostile = add_run(results, Truth(blocks=1), "web", "20260102T000000Z-bbbb")
    meta = json.loads((hostile / "run.json").read_text())
    meta["experiment"]["question"] = "</script><script>alert(1)</script>"
    (hostile / "run.json").write_text(json.dumps(meta))
    first = write_site(results, tmp_path / "site")
    before = {f.relative_to(first.parent): f.read_bytes() for f in first.parent.rglob("*") if f.is_file()}
    again = write_site(results, tmp_path / "site")
    after = {f.relative_to(again.parent): f.read_bytes() for f in again.parent.rglob("*") if f.is_file()}
    assert before == after
    pages = {f"runs/demo/{DEMO.name}/{page}.html" for page in ("report", "disclosure")}
    assert set(map(str, after)) == {"index.html", *pages}
    text = again.read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "://" not in text
    assert str(tmp_path) not in text


def test_only_a_site_is_replaced(tmp_path: Path) -> None:
    results, precious = tmp_path / "results", tmp_path / "www"
    add_run(results, Truth(blocks=1), "web", "20260101T000000Z-aaaa")
    precious.mkdir()
    (precious / "index.html").write_text("my own page")
    with pytest.raises(LoadError, match=r"www: .*results explorer"):
        write_site(results, precious)
    assert (precious / "index.html").read_text() == "my own page"
    with pytest.raises(LoadError, match="no run"):
        write_site(tmp_path / "nothing", tmp_path / "site")
