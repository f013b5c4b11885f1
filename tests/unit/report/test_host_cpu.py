"""Every page shows the host CPU that the verdict compares: what the physical machine spent, on every arm."""

from pathlib import Path

import pytest
from matplotlib.lines import Line2D

from tests.support.explorer_runs import add_run
from tests.support.synthetic_run import Row, Truth, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.machine_cpu import MachineCpu
from vmtoll.model.metric import HOST_CPU
from vmtoll.model.trial import CROSSCHECK, METAL
from vmtoll.report.charts import draw_all
from vmtoll.report.explorer.collect import collect
from vmtoll.report.html import NUMBER_CELLS
from vmtoll.report.tables import numbers


def alike(row: Row) -> list[Row]:
    """A machine that spends 60 µs a request on metal and three times as much on a guest, kernel included."""
    arm_us, kernel_us = (40, 20) if row["arm"].environment == METAL else (150, 30)
    accounts = {
        f"{prefix}machine_cpu": MachineCpu(
            arm_s=transactions * arm_us / 1e6, kernel_threads_s=0.0, interrupts_s=transactions * kernel_us / 1e6
        )
        for prefix in ("", CROSSCHECK)
        if (transactions := row.get(f"{prefix}transactions"))
    }
    return [row | accounts]


GUEST, CONTAINER = "QEMU and vhost threads of a guest", "the control group of a container"


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (Truth(), {GUEST}),
        (Truth(guests=("container",)), {CONTAINER}),
        (Truth(guests=("container", "kvm-default")), {GUEST, CONTAINER}),
        (Truth(guests=("tuned",), changes={"tuned": {"of": "metal", "apply": "true"}}), set()),
    ],
)
def test_the_chart_of_cpu_says_what_it_counts_on_the_hosts_of_this_run(
    tmp_path: Path, truth: Truth, expected: set[str]
) -> None:
    run = load_run(make_run(tmp_path, truth))
    ((_, chart),) = draw_all(run, analyse(run), ["cpu"])
    assert {
        text
        for text in ("QEMU and vhost threads of a guest", "the control group of a container")
        if text in chart.caption
    } == expected
    assert ("On the host" in chart.caption) == bool(expected)


def test_no_two_guests_look_alike_on_their_host(tmp_path: Path) -> None:
    """The baseline is one of them."""
    guests = ("kvm-a", "kvm-b", "kvm-c", "kvm-d")
    run = load_run(make_run(tmp_path, Truth(metal=False, guests=guests)))
    ((_, chart),) = draw_all(run, analyse(run), ["cpu"])
    handles = [handle for handle in chart.figure.legends[0].legend_handles if isinstance(handle, Line2D)]
    looks = {(str(handle.get_markeredgecolor()), str(handle.get_marker())) for handle in handles}
    assert len(looks) == len(handles) == 2 * len(guests)


def test_table_explorer_and_verdict_have_the_same_figures(tmp_path: Path) -> None:
    run = load_run(add_run(tmp_path, Truth({"nginx": 0.9}, change=alike), "web", "20260101T000000Z-aaaa"))
    columns = NUMBER_CELLS["host CPU µs/req"][0]
    shown = {row["environment"]: row[columns[0]] for row in numbers(run).to_dict("records")}
    assert shown == {METAL: pytest.approx(60), "kvm-default": pytest.approx(180)}
    (rows,) = [each["rows"] for each in collect(tmp_path)]
    figures = {row["environment"]: row["figures"][HOST_CPU.name]["median"] for row in rows}
    assert {name: figures[name] for name in shown} == pytest.approx(shown)
    estimate = analyse(run).comparisons[0].verdicts[HOST_CPU.name].estimate
    assert estimate is not None
    assert estimate.value == pytest.approx(3.0, rel=0.01)
