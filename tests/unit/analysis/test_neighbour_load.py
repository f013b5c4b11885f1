"""A neighbour's load: what the analysis finds is what the synthetic run was made of."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.synthetic_run import CLOSED_LOOP, Row, Truth, closed_load, make_run, rate_load
from vmtoll.analysis.neighbour_load import curves_of
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.report.charts import draw_all
from vmtoll.report.html import write_report

SHARES = (0.0, 0.5, 1.0)
# The neighbour at all it can bear takes half of the throughput, and makes the tail three times as long.
TAKEN, LONGER = 0.5, 3.0


def with_neighbour(fraction: float) -> Load:
    """Ten users, with a neighbour at this share of its capacity."""
    return closed_load(neighbour=NeighbourLoad(LoadKind.SHARE, fraction))


def disturbed(row: Row) -> list[Row]:
    """Throughput falls, and the tail grows, linearly with the neighbour's load; metal has no neighbour."""
    fraction = row["load"].neighbour.value
    if row["arm"].environment != "kvm-default":
        return [row]
    slower, longer = 1 - (1 - TAKEN) * fraction, 1 + (LONGER - 1) * fraction
    p99 = "crosscheck_service_time_p99_us"
    changed = row | {"neighbour_rps": 900.0 * fraction, "throughput_rps": row["throughput_rps"] * slower}
    return [changed | {p99: row[p99] * longer}]


TRUTH = Truth({"nginx": 0.95}, aa=False, loads=tuple(map(with_neighbour, SHARES)), change=disturbed)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("neighbour"), TRUTH))


def test_a_container_and_a_change_of_metal_have_no_neighbour(tmp_path: Path) -> None:
    guests = ("container", "kvm-default", "tuned")
    changes = {"tuned": {"of": "metal", "apply": "true"}}
    run = load_run(make_run(tmp_path, replace(TRUTH, guests=guests, changes=changes)))
    ((_, chart),) = draw_all(run, analyse(run), ["neighbour_load"])
    assert "There is no neighbour on metal and container and tuned" in " ".join(chart.caption.split())
    assert chart.alt.count("with the busiest neighbour") == 1


def test_without_metal_the_chart_does_not_mention_it(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, replace(TRUTH, metal=False)))
    ((_, chart),) = draw_all(run, analyse(run), ["neighbour_load"])
    assert "metal" not in (chart.caption + chart.alt).lower()


def test_a_load_knows_whether_it_has_its_machine_alone_and_its_place_in_order() -> None:
    busy = NeighbourLoad(LoadKind.RATE, 1)
    loads = [
        closed_load(),
        closed_load(guests=1),
        with_neighbour(0),
        closed_load(guests=2),
        closed_load(neighbour=busy),
    ]
    assert [load.is_single_machine for load in loads] == [True, True, True, False, False]
    assert {load.on_one_machine for load in loads} == {closed_load()}
    rising = [
        closed_load(10), rate_load(20), rate_load(300, guests=1), rate_load(300, guests=2), rate_load(300, guests=10),
        rate_load(400, guests=1),
    ]  # fmt: skip
    assert sorted(rising[3:] + rising[:3], key=lambda load: load.sort_key) == rising


def test_a_neighbour_has_the_effect_that_it_was_given(run: Run) -> None:
    curves = {curve.arm.environment: curve for curve in curves_of(run)}
    guest, metal = curves["kvm-default"], curves["metal"]
    assert (guest.load, guest.fields) == (closed_load(), ("throughput_rps", "service_time_p99_us"))
    assert [step.load for step in guest.steps] == [NeighbourLoad(LoadKind.SHARE, value) for value in SHARES]
    assert [step.answered_rps for step in guest.steps] == [0.0, 450.0, 900.0]
    assert [step.answered_rps for step in metal.steps] == [None] * 3
    for field, truths in (("throughput_rps", (0.75, 0.5)), ("service_time_p99_us", (2.0, 3.0))):
        for step, truth in zip(guest.steps[1:], truths, strict=True):
            effect = guest.effect(run, step, field)
            assert effect is not None and effect.low is not None and effect.high is not None
            assert effect.low <= truth <= effect.high
            assert effect.high / effect.low < 1.05
            level, quiet = step.level(run, field), guest.steps[0].level(run, field)
            assert level is not None and quiet is not None
            assert level.value / quiet.value == pytest.approx(effect.value)
            chance = metal.effect(run, metal.steps[-1], field)
            assert chance is not None and chance.low is not None and chance.high is not None
            assert chance.low <= 1 <= chance.high
    assert guest.effect(run, guest.steps[0], "throughput_rps") is None, "none against none"


def test_a_single_block_gives_no_interval(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.95}, blocks=1, aa=False, loads=tuple(map(with_neighbour, SHARES)), change=disturbed)
    run = load_run(make_run(tmp_path, truth))
    curves = {curve.arm.environment: curve for curve in curves_of(run)}
    guest = curves["kvm-default"]
    effect, level = guest.effect(run, guest.steps[1], "throughput_rps"), guest.steps[1].level(run, "throughput_rps")
    assert effect is not None and level is not None
    assert effect.low is effect.high is level.low is level.high is None


def test_a_run_with_a_neighbour_has_its_chart_alone(run: Run) -> None:
    assert len(draw_all(run, analyse(run), ["neighbour_load"])) == 1
    assert draw_all(run, analyse(run), ["cold"]) == []


def test_no_chart_without_a_neighbour(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth(blocks=2)))
    assert curves_of(run) == []
    assert draw_all(run, analyse(run), ["neighbour_load"]) == []


def cold(folder: Path, *, is_cold: bool = True) -> Run:
    """A tool that logs its service times itself: a cross-check would find the caches warm."""

    def change(row: Row) -> list[Row]:
        prefix = "crosscheck_"
        own = {key: value for key, value in row.items() if not key.startswith(prefix)}
        return [own | {key.removeprefix(prefix): row[key] for key in row if key.startswith(f"{prefix}service_time_")}]

    path = make_run(folder, Truth({"nginx": 0.5}, change=change))
    document = json.loads((path / "run.json").read_text())
    document["workloads"][CLOSED_LOOP]["cold"] = is_cold
    (path / "run.json").write_text(json.dumps(document))
    return load_run(path)


def test_cold_workloads_have_separate_charts(tmp_path: Path) -> None:
    warm = cold(tmp_path / "warm", is_cold=False)
    assert draw_all(warm, analyse(warm), ["cold"]) == []
    run = cold(tmp_path / "cold")
    assert [name for name, _ in draw_all(run, analyse(run), ["cold"])] == ["cold-1", "cold-2"]


def test_the_report_of_it_can_be_written(run: Run) -> None:
    ((name, drawn),) = draw_all(run, analyse(run), ["neighbour_load"])
    page = write_report(run, analyse(run)).read_text(encoding="utf-8")
    assert f'<figure id="{name}">' in page and drawn.title in page
