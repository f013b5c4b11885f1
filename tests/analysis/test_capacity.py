"""Capacity from ladders of known truth: what one carries, how many it takes, and what is refused.

The synthetic p99 is 0.25 ms · e^(0.55 · 2.326) / (1 − rate/capacity): of metal, with 4,000/s, it reaches 5 ms at
3,281/s; of a guest with 0.6 of that and a latency 1.2 times as long at 1,882/s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import Row, Truth, make_run, suspected

from analysis.capacity import Demand, Slo, capacity, default_slo
from analysis.capacity.fleet import fleet
from analysis.capacity.words import lines
from analysis.explorer.collect import collect
from analysis.load import LoadError, Run, load_run
from analysis.report import render
from analysis.verdict import verdict_of
from vmtoll.cli import main

RATES = (500, 1000, 1500, 2000, 2500, 3000, 3500, 3900)
LADDER = tuple(f"rate:{rate}" for rate in RATES)
SLO = Slo(5.0)


def truth(**changes: Any) -> Truth:
    return Truth(**({"servers": {"nginx": 0.6}, "drift": 0.0, "aa": False, "loads": LADDER} | changes))


def planned(tmp_path: Path, what: Truth, slo: Slo = SLO, **demand: Any) -> dict[str, Any]:
    found = capacity(load_run(make_run(tmp_path, what)), slo, Demand(**({"rate_rps": 8000} | demand)))
    assert json.loads(json.dumps(found, allow_nan=False))["results"] == found["results"]
    return found


def side(found: dict[str, Any], environment: str) -> dict[str, Any]:
    (one,) = [r for r in found["results"] if r["environment"] == environment]
    return dict(one)


def test_the_ladder_recovers_the_truth(tmp_path: Path) -> None:
    found = planned(tmp_path, truth(aa=True), guests_per_host=4)
    metal, guest = side(found, "metal"), side(found, "kvm-default")
    assert metal["one"] == {"low": 3000, "mid": 3000, "high": 3000}
    assert guest["one"] == {"low": 1500, "mid": 1500, "high": 1500}
    assert metal["measured"] == [500, 3900]
    assert metal["binds"] == "SLO (p99)"
    assert metal["notes"] == []
    assert metal["p99_ms"]["mid"] == pytest.approx(0.25 * 3.594 / (1 - 3000 / 4000), rel=0.01)
    assert metal["per_request"]["cpu_ms"]["mid"] == pytest.approx(0.045, rel=0.01)
    assert metal["per_request"]["mib"]["mid"] == pytest.approx(9120 / 2**20)
    assert metal["per_request"]["host_cpu_ms"] is None
    assert guest["per_request"]["host_cpu_ms"]["mid"] == pytest.approx(0.070 * 1.1, rel=0.01)
    # 8,000/s and 30% more over 3,000/s are 3.5 hosts, over 1,500/s 6.9 guests; and one to spare
    assert found["sentences"] == [
        "nginx, 8,000/s at p99 ≤ 5 ms, 99.9% available, 30% headroom, 1 spare: you need 5 metal hosts"
        " or 8 guests (kvm-default) on 2 hosts."
        " Beware: the loss of one host overloads what is left of kvm-default."
    ]
    assert "metal-b" not in {r["environment"] for r in found["results"]}


def test_what_a_failure_leaves_and_what_it_costs(tmp_path: Path) -> None:
    found = planned(tmp_path, truth(), guests_per_host=4, host_cost_per_hour=1.2, watts=300)
    metal, guest = (side(found, e)["plan"]["low"] for e in ("metal", "kvm-default"))
    assert metal["load_after_failure"] == pytest.approx(8000 / (4 * 3000))
    assert metal["cost_per_million"] == pytest.approx(5 * 1.2 / 28.8)
    assert metal["watt_hours_per_million"] == pytest.approx(5 * 300 / 28.8)
    assert (guest["units"], guest["hosts"]) == (8, 2)
    assert guest["load_after_failure"] == pytest.approx(8000 / (7 * 1500))
    assert guest["load_after_host_failure"] == pytest.approx(8000 / (4 * 1500))
    assert "after a host fails: 133% of the capacity of one: too much" in "\n".join(lines(found))


def test_no_spare_is_said(tmp_path: Path) -> None:
    found = planned(tmp_path, truth(), rate_rps=2500, spare=0)
    assert side(found, "metal")["plan"]["low"]["units"] == 2
    assert found["sentences"][0].endswith("2 metal hosts or 3 guests (kvm-default) on 3 hosts.")
    lone = planned(tmp_path / "b", truth(), rate_rps=1000, spare=0)
    assert lone["sentences"][0].endswith("overloads what is left of metal and kvm-default.")


def test_a_fleet_of_one_and_a_whole_quotient() -> None:
    assert fleet(1000, Demand(100, spare=0), guest=False) | {"load": None} == {
        "units": 1, "hosts": 1, "load": None, "load_after_failure": None, "load_after_host_failure": None,
        "cost_per_million": None, "watt_hours_per_million": None,
    }  # fmt: skip
    assert fleet(1300, Demand(3000, 30, spare=0), guest=False)["units"] == 3  # 3,900 over 1,300


def test_nothing_is_said_beyond_the_ladder(tmp_path: Path) -> None:
    found = planned(tmp_path, truth(loads=LADDER[:3], servers={"nginx": 1.0}), rate_rps=2000)
    metal = side(found, "metal")
    assert metal["one"]["low"] == 1500
    assert metal["at_least"]
    assert metal["binds"].startswith("nothing yet")
    assert metal["notes"] == ["the ladder ends at 1,500/s; what lies above was not measured"]
    assert "you need at most 3 metal hosts or at most 3 guests" in found["sentences"][0]


def test_nothing_is_said_below_the_ladder(tmp_path: Path) -> None:
    found = planned(tmp_path, truth(), Slo(0.5))
    metal = side(found, "metal")
    assert metal["one"] == {"low": None, "mid": None, "high": None}
    assert metal["plan"] == {"low": None, "mid": None, "high": None}
    assert metal["notes"][0] == "not even 500/s meets it, and nothing below was measured"
    assert "metal misses it at 500/s, the lowest rate measured: nothing follows" in found["sentences"][0]
    assert "you need" not in found["sentences"][0]


def test_emulation_gives_a_shape_and_no_number(tmp_path: Path) -> None:
    found = planned(tmp_path, truth(accelerator="tcg"))
    assert [side(found, e)["shape_only"] for e in ("metal", "kvm-default")] == [False, True]
    assert found["sentences"][0].endswith(
        "you need 5 metal hosts; kvm-default ran on emulation (TCG): shape only, no number of guests follows."
    )
    assert set(side(found, "kvm-default")["plan"].values()) == {None}
    assert "guests needed" not in "\n".join(lines(found))
    assert "shape only: software emulation (TCG)" in "\n".join(lines(found))


def test_noise_widens_low_to_high(tmp_path: Path) -> None:
    """With p99 near the limit at 3,000/s and much noise, the ends of the interval stand on different rungs."""
    found = planned(tmp_path, truth(noise=0.5, seed=5))
    metal = side(found, "metal")
    assert metal["one"]["low"] < metal["one"]["high"]
    plan = metal["plan"]
    assert plan["low"]["units"] > plan["high"]["units"]


def test_one_block_shows_nothing(tmp_path: Path) -> None:
    found = planned(tmp_path, truth(blocks=1), Slo(5, 99))
    metal = side(found, "metal")
    assert metal["one"]["low"] is None
    assert metal["one"]["mid"] == 3000
    assert metal["notes"] == ["1 of at least 6 blocks", "no rate is shown to meet it; more blocks may"]
    assert (
        "is not shown to meet it at 500/s, the lowest rate measured; in the way: too few blocks"
        in found["sentences"][0]
    )


def failing(rate: float, block: int | None, share: float) -> Any:
    """At that rate (and above) and in that block (None: in all) so many of the requests fail."""

    def change(row: Row) -> list[Row]:
        if row["offered_rps"] < rate or (block is not None and row["block"] != block):
            return [row]
        failed = int(share * row["requests"])
        gate = {"verdict": "invalid", "reasons": f"failed-requests: {failed}"}
        return [row | {"successful": row["requests"] - failed, "failed": failed} | gate]

    return change


def test_failures_in_one_block_are_a_cluster(tmp_path: Path) -> None:
    """Pooled, 0.05% fail: within 99.9%, and Wilson agrees. But one block of six had 0.3%, so another may too."""
    metal = side(planned(tmp_path, truth(change=failing(1900, 1, 0.003))), "metal")
    assert metal["one"]["low"] == 1500
    assert metal["one"]["mid"] == 3000
    assert metal["binds"] == "too few blocks to be sure of the availability"


def test_failures_in_all_blocks_bind(tmp_path: Path) -> None:
    metal = side(planned(tmp_path, truth(change=failing(1900, None, 0.003))), "metal")
    assert set(metal["one"].values()) == {1500}
    assert metal["binds"] == "SLO (availability)"
    assert metal["notes"] == []


def test_too_few_requests_show_no_availability(tmp_path: Path) -> None:
    """No request of 6 · 4 · 100 failed; by Wilson 99.84% are shown at best."""
    metal = side(planned(tmp_path, truth(loads=("rate:100", "rate:200"))), "metal")
    assert metal["one"] == {"low": None, "mid": 200, "high": 200}
    assert metal["binds"] == "too few requests to be sure of the availability"
    assert metal["notes"][1] == "none of 2,400 requests at 100/s failed, but so few cannot show 99.9%"
    assert side(planned(tmp_path / "b", truth(loads=("rate:100", "rate:200")), Slo(5, 99.5)), "metal")["at_least"]


def limited(**columns: Any) -> Any:
    """From 2,500/s on p99 is bad, and these columns say why."""

    def change(row: Row) -> list[Row]:
        if row["offered_rps"] < 2400:
            return [row]
        codes = columns.get("codes", ())
        row = suspected(row, *codes) if codes else row
        return [row | {"response_time_p99_us": 9000} | {k: v for k, v in columns.items() if k != "codes"}]

    return change


@pytest.mark.parametrize(
    ("columns", "binds"),
    [
        ({"codes": ("client-starved: mail",)}, "the client (client-starved)"),
        ({"codes": ("link-bound: 99%",)}, "link"),
        ({"link_used_pct": 92.0}, "link"),
        ({"server_cpu_us_per_request": 380.0}, "CPU"),
        ({"foreign_cpu_pct": 80.0}, "CPU"),
        ({"memory_pss_kib": 1_900_000}, "memory"),
        ({"server_cpu_us_per_request": 100.0}, "SLO (p99)"),
    ],
)
def test_what_binds(tmp_path: Path, columns: dict[str, Any], binds: str) -> None:
    metal = side(planned(tmp_path, truth(change=limited(**columns))), "metal")
    assert (metal["one"]["low"], metal["binds"]) == (2000, binds)


def test_a_rung_above_a_miss_is_chance(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [row | {"response_time_p99_us": 9000} if row["offered_rps"] == 2000 else row]

    metal = side(planned(tmp_path, truth(change=change)), "metal")
    assert metal["one"]["low"] == 1500
    assert metal["notes"] == ["a higher rate met it after a lower one had missed it; it is not counted"]


def test_more_than_its_cpu_allows_is_a_contradiction(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [row | {"server_cpu_us_per_request": 500.0}]  # 2,000/s at most, and 3,000/s are said to be met

    metal = side(planned(tmp_path, truth(change=change)), "metal")
    assert "Erlang C holds this p99" in metal["notes"][0]
    assert metal["erlang_c"]["rate_rps"] < 2000


def test_a_client_on_the_machine_itself_is_said(tmp_path: Path) -> None:
    metal = side(planned(tmp_path, truth(change=lambda row: [row | {"client": "localhost"}])), "metal")
    assert metal["notes"] == ["the load came from the machine itself, and took CPU from the server"]


def test_shares_are_rates(tmp_path: Path) -> None:
    metal = side(planned(tmp_path, truth(loads=("share:0.25", "share:0.5", "share:0.75", "share:0.9"))), "metal")
    assert metal["one"]["low"] == 3000


def counted(row: Row) -> list[Row]:
    """Its host's processors drew 85 W."""
    return [row | {"host_energy_j": 85.0 * row["duration_s"]}]


def test_energy_is_what_the_host_counted_where_no_power_is_given(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, truth(change=counted)))
    found = capacity(run, SLO, Demand(8000))
    metal, guest = side(found, "metal"), side(found, "kvm-default")
    assert metal["watts"] == pytest.approx({"low": 85, "mid": 85, "high": 85})
    assert metal["per_request"]["host_j"]["mid"] == pytest.approx(85 / 3000, rel=1e-3)
    assert metal["plan"]["low"]["watt_hours_per_million"] == pytest.approx(5 * 85 / 28.8)
    assert guest["plan"]["low"]["watt_hours_per_million"] == pytest.approx(8 * 85 / 28.8)
    assert "the energy is that of the whole machine, on which the load generator ran as well" in metal["notes"]
    assert "its host draws: 85 W" in "\n".join(lines(found))
    shared = side(capacity(run, SLO, Demand(8000, guests_per_host=4)), "kvm-default")
    assert shared["plan"]["low"]["watt_hours_per_million"] is None
    assert "what a host with 4 guests draws was not measured; --watts gives it" in shared["notes"]
    given = side(capacity(run, SLO, Demand(8000, watts=300, guests_per_host=4)), "kvm-default")
    assert given["plan"]["low"]["watt_hours_per_million"] == pytest.approx(2 * 300 / 28.8)


def test_the_lower_rate_is_planned_with_the_higher_power(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [row | {"host_energy_j": (80.0 + row["block"]) * row["duration_s"]}]

    metal = side(planned(tmp_path, truth(change=change)), "metal")
    power = {end: metal["plan"][end]["watt_hours_per_million"] / metal["plan"][end]["hosts"] for end in metal["plan"]}
    assert power["low"] > power["mid"] > power["high"]


def searched(parent: Path, what: Truth) -> Run:
    """The same run, as if its rates had been chosen by a search for 5 ms."""
    path = make_run(parent, what)
    meta = json.loads((path / "run.json").read_text())
    keys = {"kind": "search", "deadline_ms": 5.0, "availability_pct": 99.9, "resolution_pct": 10.0}
    meta["experiment"]["resolved"] = {"workloads": {"ladder": keys}}
    (path / "run.json").write_text(json.dumps(meta))
    return load_run(path)


def test_a_search_says_what_it_did_not_measure(tmp_path: Path) -> None:
    run = searched(tmp_path, truth(blocks=6))
    metal = side(capacity(run, SLO), "metal")
    assert metal["one"]["low"] == 3000
    assert metal["notes"] == [
        "between 3,000 and 3,500/s, which are further apart than 10%, nothing was measured: more blocks go on"
    ]
    other = side(capacity(run, Slo(4.0)), "metal")
    assert other["notes"][0].startswith("the search was for p99 ≤ 5 ms, 99.9% available: its rates may lie far apart")
    page = render(run)
    assert "Not compared block by block: ladder." in page
    assert "There is no guest in this run" not in page


def test_what_a_search_shows_at_a_rate_holds_below_it(tmp_path: Path) -> None:
    """At 100/s there were too few requests to show 99.9%: a ladder stops there, a search tried it in passing."""
    loads = ("rate:100", *LADDER)
    assert (
        side(capacity(load_run(make_run(tmp_path / "ladder", truth(loads=loads))), SLO), "metal")["one"]["low"] is None
    )
    run = searched(tmp_path / "search", truth(loads=loads))
    assert side(capacity(run, SLO), "metal")["one"]["low"] == 3000
    missed = searched(tmp_path / "missed", truth(loads=loads, change=failing(1900, None, 0.003)))
    assert side(capacity(missed, SLO), "metal")["one"]["low"] == 1500


def test_a_search_is_not_compared_and_what_stands_beside_it_is(tmp_path: Path) -> None:
    run = searched(tmp_path, truth(loads=("closed:10", *LADDER), aa=True))
    outcome = verdict_of(run)
    assert outcome["searches"] == ["ladder"]
    assert {result["workload"] for result in outcome["results"]} == {"siege-site"}
    assert {result["metrics"]["throughput"]["family"] for result in outcome["results"]} == {1}
    assert "Not compared block by block: ladder." in render(run)
    rows = collect(tmp_path / "results")[0]["rows"]
    assert {row["workload"] for row in rows} == {"siege-site", "ladder"}


def test_a_run_without_a_ladder_is_refused(tmp_path: Path) -> None:
    for place, loads in (("a", ("closed:10",)), ("b", ("rate:1000",))):
        run = load_run(make_run(tmp_path / place, truth(loads=loads)))
        assert default_slo(run) is None
        with pytest.raises(LoadError, match=r"no ladder of rates.*vmtoll run tails"):
            capacity(run, SLO)


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("ladder"), truth())


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
        ({"p99_ms": "inf"}, "p99 of inf ms: must be a number above 0"),
        ({"watts": "inf"}, "watts: must be 0 or more"),
        ({"availability": "100"}, "--availability"),
        ({"spare": "-1"}, "--spare"),
    ],
)
def test_the_command_refuses_what_cannot_be(
    ladder: Path, vmtoll: Callable[..., tuple[int, str, str]], wrong: dict[str, str], said: str
) -> None:
    code, out, err = vmtoll(ladder, **wrong)
    assert (code, out) == (2, "")
    assert said in err


def test_the_command(ladder: Path, vmtoll: Callable[..., tuple[int, str, str]]) -> None:
    code, text, _ = vmtoll(ladder, guests_per_host="4")
    assert code == 0
    code, document, _ = vmtoll(ladder, "--json", guests_per_host="4")
    assert code == 0
    found = json.loads(document)
    assert text.splitlines()[0] == found["sentences"][0]
    assert found["slo"] == {"p99_ms": 5.0, "availability_pct": 99.9}
    committed = sorted((Path(__file__).parents[2] / "results/demo").glob("2*"))[-1]
    code, out, err = vmtoll(committed)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "vmtoll run tails" in err


def test_the_report_has_a_section_where_there_is_a_ladder(tmp_path: Path) -> None:
    page = render(load_run(make_run(tmp_path / "a", truth(loads=LADDER[:2]))))
    assert "Capacity of one" in page
    assert "p99 ≤ 50 ms, 99.9% available" in page  # the deadline of the ladder itself
    assert "Capacity of one" not in render(load_run(make_run(tmp_path / "b", truth(loads=("closed:10",)))))
