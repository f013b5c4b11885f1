"""A run whose client was on the machine under test itself says so, wherever its figures stand."""

from pathlib import Path

import pytest

from tests.support.page_text import section
from tests.support.synthetic_run import CLOSED_LOOP, Row, Truth, make_run
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.note import ClientOnSameMachine
from vmtoll.model.trial import ClientPlace
from vmtoll.model.verdict import Kind
from vmtoll.report.html import render


def _run(folder: Path, client: ClientPlace) -> tuple[Run, RunAnalysis]:
    def change(row: Row) -> list[Row]:
        hosts = ("host_cpu_s", "host_cpu_us_per_request", "crosscheck_host_cpu_us_per_request")
        alone = dict.fromkeys(hosts) if client is ClientPlace.LOCALHOST else {}
        return [row | {"client": client.value} | alone]

    run = load_run(make_run(folder, Truth(change=change)))
    return run, analyse(run)


@pytest.mark.parametrize("client", ClientPlace)
@pytest.mark.usefixtures("without_charts")
def test_notes_and_report_name_a_client_on_the_machine(tmp_path: Path, client: ClientPlace) -> None:
    run, analysis = _run(tmp_path, client)
    (comparison,) = analysis.comparisons
    throughput = comparison.verdicts["throughput"]
    assert throughput.kind is Kind.SLOWER, "as published, it is a comparison like any other"
    local = client is ClientPlace.LOCALHOST
    for verdict in comparison.verdicts.values():
        if verdict.applies and verdict.estimate:
            assert (ClientOnSameMachine in {type(note) for note in verdict.notes}) == local
    assert run.local_workloads == ([CLOSED_LOOP] if local else [])
    assert (f"<dd><strong>{CLOSED_LOOP}<" in section(render(run, analysis), "rests")) == local


def test_the_hosts_cpu_is_no_longer_the_servers_alone(tmp_path: Path) -> None:
    (comparison,) = _run(tmp_path, ClientPlace.LOCALHOST)[1].comparisons
    assert comparison.verdicts["host_cpu"].kind is Kind.NOT_JUDGED
    assert comparison.verdicts["cpu"].kind is Kind.SLOWER
