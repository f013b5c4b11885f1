"""Capacity from synthetic rate sweeps: capacity of one machine, number of machines, and refusals.

The synthetic p99 is 0.25 ms · e^(0.55 · 2.326) / (1 − rate/capacity): of metal, with 4,000/s, it reaches 5 ms at
3,281/s; of a guest with 0.6 of that and a latency 1.2 times as long at 1,882/s.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.page_text import section as section_of
from tests.support.planned import RATES, SLO, STEPS, failing, planned, recommended, side, truth, unknown
from tests.support.synthetic_run import (
    CLOSED_LOOP,
    SWEEP,
    Row,
    Truth,
    closed_load,
    make_run,
    rate_load,
    share_load,
    with_findings,
)
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.capacity.estimate import ByEnd, End
from vmtoll.capacity.fleet import FleetPlan, plan_fleet
from vmtoll.capacity.limits import BindingLimit, Limit
from vmtoll.capacity.notes import NoteCode, note
from vmtoll.capacity.objective import Demand, Slo, SloPart
from vmtoll.capacity.planner import Assumption, assess_capacity, default_slo
from vmtoll.cli import main
from vmtoll.model.finding import Code
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load
from vmtoll.model.trial import Accelerator, MachineKind
from vmtoll.report.capacity import document, section, sentences, slo_text
from vmtoll.report.explorer.collect import collect
from vmtoll.report.html import render

pytestmark = pytest.mark.slow


def test_the_sweep_recovers_the_truth(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(aa=True), guests_per_host=4)
    metal, guest = side(planning, "metal"), side(planning, "kvm-default")
    assert metal.carries_rps == ByEnd(3000, 3000, 3000)
    assert guest.carries_rps == ByEnd(1500, 1500, 1500)
    assert metal.measured_rps == (500, 3900)
    assert metal.binds == BindingLimit(Limit.OBJECTIVE, SloPart.P99)
    assert metal.notes == ()
    assert metal.p99_ms is not None
    assert metal.p99_ms.mid == pytest.approx(0.25 * 3.594 / (1 - 3000 / 4000), rel=0.01)
    assert metal.request.cpu_ms is not None
    assert metal.request.cpu_ms.mid == pytest.approx(0.045, rel=0.01)
    assert metal.request.body_mib is not None
    assert metal.request.body_mib.mid == pytest.approx(9120 / 2**20)
    assert metal.request.host_cpu_ms is None
    assert guest.request.host_cpu_ms is not None
    assert guest.request.host_cpu_ms.mid == pytest.approx(0.070 * 1.1, rel=0.01)
    # 8,000/s and 30% more over 3,000/s are 3.5 hosts, over 1,500/s 6.9 guests; and one to spare
    assert (recommended(planning, "metal").units, recommended(planning, "metal").hosts) == (5, 5)
    assert (recommended(planning, "kvm-default").units, recommended(planning, "kvm-default").hosts) == (8, 2)
    assert (metal.size.cpus, guest.size.cpus, metal.arrivals) == (1, 1, "constant")
    assert planning.assumptions == tuple(Assumption)
    assert len(planning.results) == 2, "the control is no side"


def test_the_document_holds_codes_and_numbers(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(blocks=1), watts=300)
    content = document(planning)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["sentences"] == list(sentences(planning))
    metal = content["results"][0]
    assert metal["carries_rps"] == {"low": None, "mid": 3000.0, "high": 3900.0}
    assert metal["p99_ms"]["high"] is None, "one block: nothing is sure"
    assert metal["binds"] == {"kind": "too-few-blocks", "missed": "availability", "codes": []}
    assert [note["code"] for note in metal["notes"]] == ["few-blocks", "none-shown"]


def test_a_change_of_metal_is_planned_as_hosts(tmp_path: Path) -> None:
    folder = make_run(tmp_path, truth(guests=("fast",), accelerator=Accelerator.NONE))
    manifest = json.loads((folder / "run.json").read_text())
    manifest["experiment"]["changes"] = {"fast": {"of": "metal", "apply": "true"}}
    (folder / "run.json").write_text(json.dumps(manifest))
    said = " ".join(sentences(assess_capacity(load_run(folder), SLO, Demand(rate_rps=8000))))
    assert re.search(r"\d metal hosts \(fast\) of 1 CPU", said), said
    assert "guest" not in said


def test_load_after_a_failure_and_cost(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(), guests_per_host=4, host_cost_per_hour=1.2, watts=300)
    metal, guest = (recommended(planning, environment) for environment in ("metal", "kvm-default"))
    assert metal.load_after_failure == pytest.approx(8000 / (4 * 3000))
    assert metal.cost_per_million == pytest.approx(5 * 1.2 / 28.8)
    assert metal.watt_hours_per_million == pytest.approx(5 * 300 / 28.8)
    assert (guest.units, guest.hosts) == (8, 2)
    assert guest.load_after_failure == pytest.approx(8000 / (7 * 1500))
    assert guest.load_after_host_failure == pytest.approx(8000 / (4 * 1500))
    assert metal.load_after_host_failure == metal.load_after_failure, "a host is one machine"


def test_zero_spare_is_reported(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, truth()))
    planning = assess_capacity(run, SLO, Demand(2500, spare=0))
    metal, guest = (recommended(planning, environment) for environment in ("metal", "kvm-default"))
    assert (metal.units, guest.units, guest.hosts) == (2, 3, 3)
    assert metal.load_after_host_failure == pytest.approx(2500 / 3000)
    assert guest.load_after_host_failure == pytest.approx(2500 / (2 * 1500))
    lone = assess_capacity(run, SLO, Demand(1000, spare=0))
    for environment in ("metal", "kvm-default"):
        assert recommended(lone, environment).units == 1
        assert recommended(lone, environment).load_after_host_failure is None, "nothing is left"


def test_a_fleet_of_one_and_a_whole_quotient() -> None:
    assert plan_fleet(1000, Demand(100, spare=0), MachineKind.METAL) == FleetPlan(1, 1, 0.1, None, None, None, None)
    assert plan_fleet(1300, Demand(3000, 30, spare=0), MachineKind.METAL).units == 3  # 3,900 over 1,300


def test_no_claim_above_the_sweep(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(loads=STEPS[:3], servers={"nginx": 1.0}), rate_rps=2000)
    metal = side(planning, "metal")
    assert metal.carries_rps.low == 1500
    assert metal.at_least
    assert metal.binds == BindingLimit(Limit.NOTHING)
    assert metal.notes == (note(NoteCode.SWEEP_ENDS, rate_rps=1500),)
    assert side(planning, "kvm-default").at_least
    assert [recommended(planning, environment).units for environment in ("metal", "kvm-default")] == [3, 3]


def test_no_claim_below_the_sweep(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(), Slo(0.5))
    metal = side(planning, "metal")
    assert metal.carries_rps == ByEnd(None, None, None)
    assert metal.plan == ByEnd(None, None, None)
    assert metal.notes[0] == note(NoteCode.LOWEST_MISSES, rate_rps=500)
    assert metal.measured_rps[0] == 500
    assert side(planning, "kvm-default").plan == ByEnd(None, None, None)


def test_emulation_gives_a_shape_and_no_number(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(accelerator=Accelerator.TCG))
    accelerators = [side(planning, environment).accelerator for environment in ("metal", "kvm-default")]
    assert accelerators == [Accelerator.NONE, Accelerator.TCG]
    assert recommended(planning, "metal").units == 5
    assert side(planning, "kvm-default").plan == ByEnd(None, None, None)


def test_emulated_hardware_gives_a_shape_and_no_number(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(hardware=Hardware.EMULATED))
    for environment in ("metal", "kvm-default"):
        assert side(planning, environment).hardware is Hardware.EMULATED
        assert side(planning, environment).plan == ByEnd(None, None, None)


def test_nested_kvm_gives_a_number_and_its_scope(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(hardware=Hardware.NESTED))
    assert side(planning, "kvm-default").hardware is Hardware.NESTED
    assert [recommended(planning, environment).units for environment in ("metal", "kvm-default")] == [5, 8]


def test_noise_widens_low_to_high(tmp_path: Path) -> None:
    """With p99 near the limit at 3,000/s and much noise, the ends of the interval stand on different steps."""
    metal = side(planned(tmp_path, truth(noise=0.5, seed=5)), "metal")
    low, high = metal.carries_rps.low, metal.carries_rps.high
    assert low is not None and high is not None and low < high
    assert metal.plan is not None and metal.plan.low is not None and metal.plan.high is not None
    assert metal.plan.low.units > metal.plan.high.units


def test_one_block_shows_nothing(tmp_path: Path) -> None:
    planning = planned(tmp_path, truth(blocks=1), Slo(5, 99))
    metal = side(planning, "metal")
    assert metal.carries_rps.low is None
    assert metal.carries_rps.mid == 3000
    assert metal.notes == (note(NoteCode.FEW_BLOCKS, blocks=1, needed=6), note(NoteCode.NONE_SHOWN))
    assert metal.binds == BindingLimit(Limit.TOO_FEW_BLOCKS, SloPart.AVAILABILITY)
    assert metal.plan is not None and metal.plan.low is None


def test_too_few_requests_show_no_availability(tmp_path: Path) -> None:
    """No request of 6 · 4 · 100 failed; by Wilson 99.84% are shown at best."""
    metal = side(planned(tmp_path, truth(loads=(rate_load(100), rate_load(200)))), "metal")
    assert metal.carries_rps == ByEnd(None, 200, 200)
    assert metal.binds == BindingLimit(Limit.TOO_FEW_REQUESTS, SloPart.AVAILABILITY)
    assert metal.notes[1] == note(
        NoteCode.TOO_FEW_REQUESTS, requests=2400, rate_rps=100, availability_pct=99.9, more_s=15, shown_pct=99.84
    )
    assert side(planned(tmp_path / "b", truth(loads=(rate_load(100), rate_load(200))), Slo(5, 99.5)), "metal").at_least


def test_too_few_requests_are_named_before_the_client(tmp_path: Path) -> None:
    """A client that was late in every trial is not why 2,400 requests cannot show 99.9%."""

    def late(row: Row) -> list[Row]:
        return [with_findings(row, Code.CLIENT_LATE) | {"lateness_p99_us": 200}]

    metal = side(planned(tmp_path, truth(loads=(rate_load(100), rate_load(200)), change=late)), "metal")
    assert metal.binds == BindingLimit(Limit.TOO_FEW_REQUESTS, SloPart.AVAILABILITY)


@pytest.mark.parametrize(
    ("late_us", "binding"),
    [
        (200, BindingLimit(Limit.OBJECTIVE, SloPart.P99)),
        (6000, BindingLimit(Limit.CLIENT, codes=(Code.CLIENT_LATE,))),
        (None, BindingLimit(Limit.CLIENT, codes=(Code.CLIENT_LATE,))),
    ],
)
def test_a_late_client_is_blamed_where_its_delay_can_be_the_reason(
    tmp_path: Path, late_us: float | None, binding: BindingLimit
) -> None:
    """From 2,500/s p99 is 9 ms and the objective 5 ms: without 0.2 ms it is still missed, without 6 ms it is met.

    A tool that does not tell how late it was may have been late by anything.
    """
    metal = side(planned(tmp_path, truth(change=limited(code=Code.CLIENT_LATE, lateness_p99_us=late_us))), "metal")
    assert metal.binds == binding


def limited(**columns: Any) -> Any:
    """From 2,500/s on p99 is bad, and these columns say why."""

    def change(row: Row) -> list[Row]:
        if row["offered_rps"] < 2400:
            return [row]
        figures = {name: figure for name, figure in columns.items() if name != "code"}
        row = with_findings(row, columns["code"]) if "code" in columns else row
        return [row | {"response_time_p99_us": 9000} | figures]

    return change


@pytest.mark.parametrize(
    ("columns", "binding"),
    [
        ({"code": Code.CLIENT_STARVED}, BindingLimit(Limit.CLIENT, codes=(Code.CLIENT_STARVED,))),
        ({"code": Code.LINK_BOUND}, BindingLimit(Limit.LINK)),
        ({"link_used_pct": 92.0}, BindingLimit(Limit.LINK)),
        ({"server_cpu_us_per_request": 380.0}, BindingLimit(Limit.CPU)),
        ({"background_cpu_pct": 80.0}, BindingLimit(Limit.CPU)),
        ({"memory_pss_kib": 1_900_000}, BindingLimit(Limit.MEMORY)),
        ({"server_cpu_us_per_request": 100.0}, BindingLimit(Limit.OBJECTIVE, SloPart.P99)),
    ],
)
def test_binding_resources(tmp_path: Path, columns: dict[str, Any], binding: BindingLimit) -> None:
    metal = side(planned(tmp_path, truth(change=limited(**columns))), "metal")
    assert (metal.carries_rps.low, metal.binds) == (2000, binding)


def test_a_step_above_a_miss_is_chance(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [row | {"response_time_p99_us": 9000} if row["offered_rps"] == 2000 else row]

    metal = side(planned(tmp_path, truth(change=change)), "metal")
    assert metal.carries_rps.low == 1500
    assert metal.notes == (note(NoteCode.MET_ABOVE_A_MISS),)


def test_more_than_its_cpu_allows_is_a_contradiction(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [row | {"server_cpu_us_per_request": 500.0}]  # 2,000/s at most, and 3,000/s seem to meet it

    metal = side(planned(tmp_path, truth(change=change)), "metal")
    assert metal.erlang_c is not None
    assert metal.erlang_c.rate_rps < 2000
    assert metal.notes == (note(NoteCode.ABOVE_ERLANG, rate_rps=metal.erlang_c.rate_rps),)


def test_local_client_is_reported(tmp_path: Path) -> None:
    metal = side(planned(tmp_path, truth(change=lambda row: [row | {"client": "localhost"}])), "metal")
    assert metal.notes == (note(NoteCode.CLIENT_ON_SAME_MACHINE),)


def test_shares_are_rates(tmp_path: Path) -> None:
    metal = side(planned(tmp_path, truth(loads=tuple(map(share_load, (0.25, 0.5, 0.75, 0.9))))), "metal")
    assert metal.carries_rps.low == 3000


def counted(row: Row) -> list[Row]:
    """Its host's processors drew 85 W."""
    return [row | {"host_energy_j": 85.0 * row["duration_s"]}]


def test_energy_is_what_the_host_counted_where_no_power_is_given(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, truth(change=counted)))
    planning = assess_capacity(run, SLO, Demand(8000))
    metal = side(planning, "metal")
    assert metal.power_w is not None
    assert [metal.power_w[end] for end in End] == pytest.approx([85, 85, 85])
    assert metal.request.host_energy_j is not None
    assert metal.request.host_energy_j.mid == pytest.approx(85 / 3000, rel=1e-3)
    assert recommended(planning, "metal").watt_hours_per_million == pytest.approx(5 * 85 / 28.8)
    assert recommended(planning, "kvm-default").watt_hours_per_million == pytest.approx(8 * 85 / 28.8)
    assert metal.notes == (note(NoteCode.ENERGY_OF_CLIENT_TOO),)
    shared = assess_capacity(run, SLO, Demand(8000, guests_per_host=4))
    assert recommended(shared, "kvm-default").watt_hours_per_million is None
    assert note(NoteCode.SHARED_POWER_UNKNOWN, guests=4) in side(shared, "kvm-default").notes
    given = assess_capacity(run, SLO, Demand(8000, watts=300, guests_per_host=4))
    assert recommended(given, "kvm-default").watt_hours_per_million == pytest.approx(2 * 300 / 28.8)


def test_the_lower_rate_is_planned_with_the_higher_power(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [row | {"host_energy_j": (80.0 + row["block"]) * row["duration_s"]}]

    metal = side(planned(tmp_path, truth(change=change)), "metal")
    assert metal.plan is not None
    plans = [planned for planned in metal.plan.all if planned]
    low, mid, high = ((planned.watt_hours_per_million or 0) / planned.hosts for planned in plans)
    assert low > mid > high


def searched(parent: Path, what: Truth) -> Run:
    """The same run, as if its rates had been chosen by a search for 5 ms."""
    path = make_run(parent, what)
    manifest = json.loads((path / "run.json").read_text())
    manifest["workloads"][SWEEP] = {
        "name": SWEEP, "description": "made up by a test", "site": "pages", "tool": "vegeta", "keep_alive": False,
        "kind": "search", "deadline_ms": 5.0, "between_rps": [500.0, 4000.0],
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(manifest))
    return load_run(path)


@pytest.mark.usefixtures("without_charts")
def test_a_search_reports_what_it_did_not_measure(tmp_path: Path) -> None:
    run = searched(tmp_path, truth(blocks=6))
    metal = side(assess_capacity(run, SLO), "metal")
    assert metal.carries_rps.low == 3000
    assert metal.notes == (note(NoteCode.GAP_IN_SEARCH, low_rps=3000, high_rps=3500, resolution_pct=10),)
    other = side(assess_capacity(run, Slo(4.0)), "metal")
    assert other.notes[0] == note(NoteCode.OTHER_OBJECTIVE_SEARCHED, p99_ms=5.0, availability_pct=99.9)
    analysis = analyse(run)
    assert (analysis.searches, analysis.comparisons) == ((SWEEP,), ())
    assert SWEEP in section_of(render(run, analysis), "verdicts")


def test_a_result_of_a_search_holds_at_lower_rates(tmp_path: Path) -> None:
    """At 100/s there were too few requests to show 99.9%: a sweep stops there, a search tried it in passing."""

    def low(run: Run) -> float | None:
        return side(assess_capacity(run, SLO), "metal").carries_rps.low

    loads = (rate_load(100), *STEPS)
    assert low(load_run(make_run(tmp_path / "sweep", truth(loads=loads)))) is None
    assert low(searched(tmp_path / "search", truth(loads=loads))) == 3000
    assert low(searched(tmp_path / "missed", truth(loads=loads, change=failing(1900, None, 0.003)))) == 1500


@pytest.mark.usefixtures("without_charts")
def test_a_search_is_not_compared_but_other_workloads_of_its_run_are(tmp_path: Path) -> None:
    run = searched(tmp_path, truth(loads=(closed_load(), *STEPS), aa=True))
    analysis = analyse(run)
    assert analysis.searches == (SWEEP,)
    assert {comparison.scenario.workload for comparison in analysis.comparisons} == {CLOSED_LOOP}
    assert {comparison.verdicts["throughput"].tests.family for comparison in analysis.comparisons} == {4}
    assert SWEEP in section_of(render(run, analysis), "verdicts")
    rows = collect(tmp_path / "results")[0]["rows"]
    assert {row["workload"] for row in rows} == {CLOSED_LOOP, SWEEP}


@pytest.mark.parametrize("load", [closed_load(), rate_load(1000)])
def test_a_run_without_a_sweep_gives_no_number(tmp_path: Path, load: Load) -> None:
    run = load_run(make_run(tmp_path, truth(loads=(load,))))
    assert default_slo(run) is None
    assert assess_capacity(run, SLO).is_empty


def test_a_sweep_of_an_unknown_capacity_gives_no_number(tmp_path: Path) -> None:
    assert assess_capacity(load_run(make_run(tmp_path, truth(change=unknown))), SLO).is_empty


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("sweep"), truth())


@pytest.fixture
def vmtoll(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`vmtoll capacity RUN …` in this process: exit code, stdout, stderr."""

    def run(folder: Path, *flags: str, **options: str) -> tuple[int, str, str]:
        chosen = {"rate": "8000", "p99-ms": "5"} | {name.replace("_", "-"): value for name, value in options.items()}
        words = [f"--{name}={value}" for name, value in chosen.items()]
        monkeypatch.setattr("sys.argv", ["vmtoll", "capacity", str(folder), *words, *flags])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rate": "nan"}, "--rate"),
        ({"p99_ms": "inf"}, "p99_ms: must be a finite number (got inf)"),
        ({"watts": "inf"}, "watts: must be a finite number (got inf)"),
        ({"availability": "100"}, "--availability"),
        ({"spare": "-1"}, "--spare"),
    ],
)
def test_the_command_refuses_what_cannot_be(
    sweep: Path, vmtoll: Callable[..., tuple[int, str, str]], wrong: dict[str, str], said: str
) -> None:
    code, out, err = vmtoll(sweep, **wrong)
    assert (code, out) == (2, "")
    assert said in err


def test_the_command(sweep: Path, tmp_path: Path, vmtoll: Callable[..., tuple[int, str, str]]) -> None:
    code, text, _ = vmtoll(sweep, guests_per_host="4")
    assert code == 0
    code, printed, _ = vmtoll(sweep, "--json", guests_per_host="4")
    assert code == 0
    content = json.loads(printed)
    assert text.splitlines()[0] == content["sentences"][0]
    assert content["slo"] == {"p99_ms": 5.0, "availability_pct": 99.9}
    code, out, err = vmtoll(make_run(tmp_path, truth(loads=(closed_load(),))))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "vmtoll run tails" in err


@pytest.mark.usefixtures("without_charts")
def test_the_report_of_a_sweep_has_a_section(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "a", truth(loads=STEPS[:2])))
    assert default_slo(run) == Slo(50), "the deadline of the sweep itself"
    content = section(run)
    assert content is not None
    assert (content["objective"], len(content["rows"])) == (slo_text(Slo(50)), 2)
    page = render(run, analyse(run))
    assert '<h2 id="capacity">' in page and content["objective"] in page
    other = load_run(make_run(tmp_path / "b", truth(loads=(closed_load(),))))
    assert section(other) is None
    assert '<h2 id="capacity">' not in render(other, analyse(other))


def test_a_capacity_of_even_arrivals_gives_that_of_random_ones(tmp_path: Path) -> None:
    """0.5 ms of CPU a request, and p99 within 5 ms: 77% of what even arrivals of the same work show (M/D/1)."""

    def change(row: Row) -> list[Row]:
        return [row | {"server_cpu_us_per_request": 500.0, "host_cpu_us_per_request": None}]

    planning = planned(tmp_path, truth(guests=(), change=change))
    metal = side(planning, "metal")
    assert metal.erlang_c is not None
    random = metal.erlang_c.random
    assert random.fixed_work == pytest.approx(0.778, abs=0.005)
    assert random.exponential_work == pytest.approx(0.723, abs=0.005)
    assert (metal.arrivals, Assumption.EVEN_ARRIVALS in planning.assumptions) == ("constant", True)
    uncounted = planned(
        tmp_path / "b", truth(guests=(), change=lambda row: [row | {"server_cpu_us_per_request": None}])
    )
    assert side(uncounted, "metal").erlang_c is None


def test_a_rate_whose_response_times_grow_is_missed(tmp_path: Path) -> None:
    """From 2,500/s on each trial of ten seconds begins at 1 ms and ends at 4: within 5 ms, for as long as it lasts."""

    def change(row: Row) -> list[Row]:
        return [row | {"histogram": f"histograms/{row['block']}-{row['offered_rps']:.0f}.hdr"}]

    path = make_run(tmp_path, truth(guests=(), change=change))
    for block in range(1, 7):
        for rps in RATES:
            times_us = [1000 * 1.15**second if rps >= 2500 else 1000 for second in range(10)]
            rows = "".join(f"{second},{time_us:.0f},{rps}\n" for second, time_us in enumerate(times_us))
            (path / f"histograms/{block}-{rps}.csv").write_text("second,latency_us,count\n" + rows)
    metal = side(assess_capacity(load_run(path), SLO, Demand(8000)), "metal")
    assert metal.carries_rps == ByEnd(2000, 2000, 2000)
    assert metal.binds == BindingLimit(Limit.OBJECTIVE, SloPart.GROWTH)
