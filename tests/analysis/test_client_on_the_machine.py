"""A run whose client was on the machine under test itself says so, wherever its figures stand."""

from __future__ import annotations

from pathlib import Path

from synthetic_run import Row, Truth, make_run

from analysis.load import load_run
from analysis.report import render
from analysis.verdict import verdict

WORDS = "client on the same machine"


def _run(folder: Path, client: str) -> Path:
    def change(row: Row) -> list[Row]:
        alone = {"host_cpu_s": None, "host_cpu_us_per_request": None, "twin_host_cpu_us_per_request": None}
        return [row | {"client": client} | (alone if client == "localhost" else {})]

    return make_run(folder, Truth(change=change))


def test_verdict_and_report_say_so(tmp_path: Path) -> None:
    run_dir = _run(tmp_path, "localhost")
    (result,) = verdict(run_dir)["results"]
    throughput = result["metrics"]["throughput"]
    assert throughput["kind"] == "metal is faster by", "as published, it is a comparison like any other"
    assert any(note.startswith(WORDS) for note in throughput["notes"])
    run = load_run(run_dir)
    assert run.local == [result["workload"]]
    assert f"<dt>{WORDS.capitalize()}</dt><dd><strong>{result['workload']}</strong>" in render(run)


def test_the_hosts_cpu_is_no_longer_the_servers_alone(tmp_path: Path) -> None:
    (result,) = verdict(_run(tmp_path, "localhost"))["results"]
    assert result["metrics"]["host_cpu"]["kind"] == "invalid because"
    assert result["metrics"]["cpu"]["kind"] == "metal is faster by"


def test_of_a_client_of_its_own_nothing_is_said(tmp_path: Path) -> None:
    for client in ("remote", ""):
        run_dir = _run(tmp_path / (client or "older"), client)
        (result,) = verdict(run_dir)["results"]
        assert not any(WORDS in note for metric in result["metrics"].values() for note in metric["notes"])
        assert WORDS not in render(load_run(run_dir)).lower()
