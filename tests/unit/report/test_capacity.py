"""Capacity in words: the answers, the lines behind them, and a sentence for each limit and note."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.planned import SLO, side, truth, unknown
from tests.support.snapshots import Sections, assert_snapshot
from tests.support.synthetic_run import Truth, make_run
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.capacity.consolidation import Consolidation, SharedCapacity, SharedRate
from vmtoll.capacity.estimate import ByEnd, End
from vmtoll.capacity.fleet import FleetPlan
from vmtoll.capacity.limits import BindingLimit, Limit
from vmtoll.capacity.notes import NoteCode, note
from vmtoll.capacity.objective import Demand, Slo, SloPart
from vmtoll.capacity.planner import CapacityAssessment, CapacityResult, assess_capacity
from vmtoll.capacity.scaling import LevelKind, Scaling, Usl
from vmtoll.model.finding import Code
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import blanks
from vmtoll.model.trial import Accelerator, kind_of
from vmtoll.report import capacity

pytestmark = pytest.mark.slow

NO_PLAN: ByEnd[FleetPlan | None] = ByEnd(None, None, None)
LIMITS = {
    Limit.CLIENT: BindingLimit(Limit.CLIENT, codes=(Code.CLIENT_STARVED, Code.CLIENT_LATE)),
    Limit.OBJECTIVE: BindingLimit(Limit.OBJECTIVE, SloPart.P99),
    Limit.TOO_FEW_REQUESTS: BindingLimit(Limit.TOO_FEW_REQUESTS, SloPart.AVAILABILITY),
    Limit.TOO_FEW_BLOCKS: BindingLimit(Limit.TOO_FEW_BLOCKS, SloPart.AVAILABILITY),
}
FIGURES = {
    "p99_ms": 5.0, "availability_pct": 99.9, "low_rps": 3000, "high_rps": 3500, "resolution_pct": 10, "blocks": 1,
    "needed": 6, "rate_rps": 1500, "requests": 2400, "more_s": 15, "shown_pct": 99.84, "guests": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("sweep"), truth()))


def answer(run: Run, slo: Slo = SLO, **demand: float) -> str:
    (text,) = capacity.sentences(assess_capacity(run, slo, Demand(**({"rate_rps": 8000} | demand))))  # type: ignore[arg-type]
    return text


def answers(run: Run) -> Sections:
    """The sentence of a plan: how many of what, and why none of what gives no number."""
    planning = assess_capacity(run, SLO, Demand(8000, guests_per_host=4))
    metal, guest = side(planning, "metal"), side(planning, "kvm-default")
    few = BindingLimit(Limit.TOO_FEW_BLOCKS, SloPart.P99)
    below: dict[str, Any] = {"accelerator": Accelerator.KVM, "hardware": Hardware.EMULATED, "plan": NO_PLAN}
    assert metal.erlang_c is not None
    at_once = replace(metal.erlang_c, random=replace(metal.erlang_c.random, fixed_work=0.778, exponential_work=0.723))

    def of(*results: CapacityResult) -> Iterable[str]:
        return capacity.sentences(replace(planning, results=results))

    return {
        "The number of machines": {
            "four guests a host": of(metal, guest),
            "without a spare": answer(run, rate_rps=2500, spare=0),
            "one of each, without a spare": answer(run, rate_rps=1000, spare=0),
            "a sweep that ends where the objective is still met": of(
                replace(metal, at_least=True), replace(guest, at_least=True)
            ),
            "two workloads": of(metal, replace(metal, workload="site-rate")),
        },
        "No number": {
            "the lowest rate misses the objective": answer(run, Slo(0.5)),
            "no rate is shown to meet it": of(replace(metal, plan=NO_PLAN, binds=few)),
            "an emulated guest": of(metal, replace(guest, accelerator=Accelerator.TCG, plan=NO_PLAN)),
            "on emulated hardware": of(replace(metal, **below), replace(guest, **below)),
            "without a sweep": of(),
        },
        "How requests came": {
            "at even intervals, to a queue": of(replace(metal, erlang_c=at_once)),
            "at even intervals, to an unknown queue": of(replace(metal, erlang_c=None)),
            "at random": of(replace(metal, arrivals="poisson")),
        },
    }  # fmt: skip


def test_what_a_fleet_has_many_of(tmp_path: Path) -> None:
    """A change of metal is made to metal, so what is needed is hosts."""
    environments = ("container", "metal-thp", "kvm-default")
    path = make_run(tmp_path, replace(truth(), guests=environments))
    manifest = json.loads((path / "run.json").read_text())
    manifest["accelerators"] |= {"container": "none", "metal-thp": "none"}
    manifest["experiment"]["changes"] = {"metal-thp": {"of": "metal", "settings": {"transparent_hugepage": "never"}}}
    (path / "run.json").write_text(json.dumps(manifest))
    planning = assess_capacity(load_run(path), SLO, Demand(8000))
    needed = {
        name: [label for label, _ in capacity.facts(side(planning, name)) if label.endswith(" needed")]
        for name in ("metal", *environments)
    }
    assert needed == {
        "metal": ["hosts needed"],
        "container": ["containers needed"],
        "metal-thp": ["hosts needed"],
        "kvm-default": ["guests needed"],
    }


def lines(run: Run) -> Sections:
    """All that is known of a plan, the scope of what ran on other hardware, and each limit and note."""
    demand = Demand(8000, guests_per_host=4, host_cost_per_hour=1.2, watts=300)
    planning = assess_capacity(run, SLO, demand)
    metal, guest = side(planning, "metal"), side(planning, "kvm-default")

    def fact(name: str, result: CapacityResult) -> str:
        return dict(capacity.facts(result)).get(name, "")

    emulated = replace(guest, accelerator=Accelerator.TCG, plan=NO_PLAN)
    unsure = ByEnd(0.9981, 0.9995, 1.0)
    return {
        "A plan": {"as the terminal shows it": capacity.lines(planning)},
        "What is below": {
            "an emulated guest": fact("not a measurement", emulated),
            "an emulated guest gives no number": fact("guests needed", emulated),
            "emulated hardware": fact("not a measurement", replace(guest, hardware=Hardware.EMULATED)),
            "nested KVM": fact("hardware", replace(guest, hardware=Hardware.NESTED)),
            "metal beside nested KVM": fact("hardware", replace(metal, hardware=Hardware.NESTED)),
        },
        "Figures": {
            "counted power": fact("its host draws", replace(metal, power_w=ByEnd(85.0, 85.0, 85.0))),
            "a p99 of failed requests": fact("p99 at that rate", replace(metal, p99_ms=ByEnd(1.0, math.inf, math.inf))),
            "failures that were seen": capacity.available_text(replace(metal, available=unsure, unseen_share=None)),
            "ends that differ": capacity.carried_text(replace(metal, carries_rps=ByEnd(1000, 2000, 3000))),
            "an unknown queue": capacity.arrivals_text(replace(metal, erlang_c=None)),
            "random arrivals": capacity.arrivals_text(replace(metal, arrivals="poisson")),
        },
        "What binds": {
            **{limit: capacity.binding_text(LIMITS.get(limit, BindingLimit(limit))) for limit in Limit},
            "growth": capacity.binding_text(BindingLimit(Limit.OBJECTIVE, SloPart.GROWTH)),
        },
        "A note": {code: note(code, **{name: FIGURES[name] for name in blanks(code.text)}).text for code in NoteCode},
    }  # fmt: skip


def refusals(folder: Path) -> Sections:
    runs = {"an unknown capacity": truth(change=unknown), "no sweep": Truth(blocks=1)}
    said = {name: capacity.no_capacity_text(load_run(make_run(folder / name, what))) for name, what in runs.items()}
    return {"No rate was measured": said}


# ---- guests on one host, and the scaling of throughput

Counts = tuple[int, ...]


def shared(rate_rps: float, low: Counts, mid: Counts | None = None, high: Counts | None = None) -> SharedRate:
    """The numbers of guests, of 1, 2 and 4, that meet the objective at this rate."""
    ends = ByEnd(low, low if mid is None else mid, low if high is None else high)
    return SharedRate(rate_rps, ends, dict.fromkeys((1, 2, 4)), {})


def host(*rates: SharedRate, levels: Sequence[SharedCapacity] = (), environment: str = "kvm-default") -> Consolidation:
    return Consolidation(
        "sweep",
        "nginx",
        environment,
        kind_of(environment),
        Accelerator.KVM,
        Hardware.NATIVE,
        levels=tuple(levels),
        rates=rates,
    )


def carried(guests: int, rps: float, *open_ends: End) -> SharedCapacity:
    return SharedCapacity(guests, ByEnd(rps, rps, rps), open_ends)


def scaling(alpha: float, beta: float, largest: float, *, over: LevelKind = LevelKind.USERS) -> Scaling:
    peak = math.sqrt((1 - alpha) / beta) if beta else None
    law = Usl(1000.0, alpha, beta, (None, None, None), 0.0, largest, peak, 1000 / alpha)
    return Scaling(
        over, "nginx", "kvm-default", "closed", None, "h2load", Accelerator.NONE, Hardware.NATIVE, law, None, None, ()
    )


ALL_GUESTS, TWO, ONE = (1, 2, 4), (1, 2), (1,)
HOSTS = {
    "up to all of them": host(shared(200, ALL_GUESTS), shared(400, TWO), shared(800, ONE)),
    "one of them": host(shared(200, ONE), shared(400, ONE)),
    "none": host(shared(200, ()), shared(800, ())),
    "too much for one": host(shared(400, (2,)), shared(400, (2, 4))),
    "a single block": host(shared(400, (), TWO, ALL_GUESTS)),
    "emulated": replace(host(shared(200, ALL_GUESTS)), accelerator=Accelerator.TCG),
}
LEVELS = (carried(1, 800, *End), carried(2, 400), carried(4, 200))


def sharing_and_scaling() -> Sections:
    def sentences(host: Consolidation) -> list[str]:
        planning = CapacityAssessment("run", Slo(50.0), None, (), (host,), (), ())
        return list(capacity.sharing_and_scaling_sentences(planning))

    laws = CapacityAssessment("run", None, None, (), (), (scaling(0.05, 0.001, 100),), ())
    together = host(shared(200, ALL_GUESTS), shared(800, ONE), levels=LEVELS)
    return {
        "Guests on one host": {name: sentences(host) for name, host in HOSTS.items()},
        "Under the chart": {
            "guests": capacity.consolidation_text(together),
            "metal": capacity.consolidation_text(host(levels=LEVELS[:1], environment="metal")),
        },
        "Scaling": {
            "as a sentence": capacity.sharing_and_scaling_sentences(laws),
            "a peak that was measured": capacity.scaling_text(scaling(0.05, 0.001, 100)),
            "a peak beyond what was measured": capacity.scaling_text(scaling(0.05, 0.001, 20)),
            "no peak": capacity.scaling_text(scaling(0.1, 0, 8, over=LevelKind.CPUS)),
        },
    }  # fmt: skip


def test_the_words_of_capacity(run: Run, tmp_path: Path) -> None:
    sections = {**answers(run), **lines(run), **refusals(tmp_path), **sharing_and_scaling()}
    assert_snapshot(SNAPSHOTS / "capacity.txt", sections)
