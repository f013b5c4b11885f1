"""Machines whose exits cannot be explained are refused before anything is measured, in one sentence."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from tests.support.records import make_record
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, ExperimentError
from vmtoll.model.event import Event, NotMeasured
from vmtoll.model.exits import ExitReason, ExplainedTrial
from vmtoll.model.finding import Code, Finding
from vmtoll.model.inventory import Inventory
from vmtoll.model.trial import Accelerator, TrialSpec
from vmtoll.runner.blocks import FixedBlocks
from vmtoll.runner.explain import explain, prepare
from vmtoll.runner.plan import explained
from vmtoll.runner.requirements import check_inventory
from vmtoll.runs.store import Store
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load
from vmtoll.spec.machines import from_data

DOCUMENT: dict[str, Any] = {
    "question": "?", "environments": ["metal", "kvm-default"], "servers": ["nginx"], "workloads": ["site-rate-100"],
    "blocks": 6, "warmup_s": 1, "duration_s": 8, "explain": "exits",
}  # fmt: skip
PRICE = {"kind": "cpuid", "ns": 1200.0, "low_ns": 1100.0, "high_ns": 1300.0, "exits": 900}


@pytest.fixture
def resolved(tmp_path: Path) -> Resolved:
    path = tmp_path / "explained.yml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    return load(path, Registry())


def inventory(**guest: Any) -> Inventory:
    known = {"vmtoll_kvm_host": "host", "vmtoll_domain": "guest"} if "unseen" not in guest else {}
    guest = {key: value for key, value in guest.items() if key != "unseen"}
    local = {"ansible_connection": "local"}
    hosts = {
        "client": local, "metal": local | {"vmtoll_environment": "metal"}, "host": local,
        "guest": local | {"vmtoll_environment": "kvm-default"} | known | guest,
    }  # fmt: skip
    groups = {"clients": ["client"], "metal_hosts": ["metal"], "kvm_hosts": ["host"], "kvm_guests": ["guest"]}
    lists = {name: {"hosts": members} for name, members in groups.items()}
    return from_data({"_meta": {"hostvars": hosts}, **lists}, ["metal", "kvm-default"])


@pytest.mark.parametrize(
    ("guest", "words"),
    [
        ({"unseen": True}, "the inventory names no KVM host of guest; set vmtoll_kvm_host and vmtoll_domain"),
        ({"vmtoll_accelerator": "tcg"}, r"guest is emulated \(TCG\) and has no exits"),
    ],
)
def test_an_inventory_that_cannot_be_explained(resolved: Resolved, guest: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError, match=words) as refused:
        check_inventory(resolved, inventory(**guest), Path("lab.yml"))
    assert str(refused.value).startswith(f"{resolved.file}: explain: ")
    assert str(refused.value).endswith("or leave `explain` out")
    check_inventory(resolved, inventory(), Path("lab.yml"))


class Line:
    """A KVM host's agent, by what it answers."""

    def __init__(self, obstacle: tuple[str, str] = ("", ""), prices: list[Any] | None = None) -> None:
        self.obstacle, self.prices, self.asked = obstacle, prices, list[str]()

    def call(self, op: str, *_: Any) -> Any:
        self.asked.append(op)
        if op == "exits_obstacle":
            return dict(zip(("why", "way_out"), self.obstacle, strict=True))
        if self.prices is None:
            raise AgentError("host: /dev/kvm: not permitted", "host")
        return self.prices


def session(resolved: Resolved, store: Store | None, line: Line, ran_by: Accelerator = Accelerator.KVM) -> Session:
    state = SimpleNamespace(
        resolved=resolved, inventory=inventory(), store=store, accelerators={"kvm-default": ran_by},
        line=lambda _: line,
    )  # fmt: skip
    return cast("Session", state)


def test_a_guest_that_kvm_does_not_run_is_refused(resolved: Resolved) -> None:
    with pytest.raises(ExperimentError, match=r"kvm-default .*by KVM \(tcg\)"):
        prepare(session(resolved, None, Line(), Accelerator.TCG))


def test_what_the_host_lacks_is_in_the_sentence(resolved: Resolved) -> None:
    line = Line(("no tracefs is mounted there", "run `mount -t tracefs tracefs /sys/kernel/tracing` on it"))
    with pytest.raises(ExperimentError) as refused:
        prepare(session(resolved, None, line))
    assert str(refused.value).startswith(f"{resolved.file}: explain: ")
    assert "no tracefs" in str(refused.value) and "`mount -t tracefs " in str(refused.value)
    assert str(refused.value).endswith("or leave `explain` out")


def test_a_run_without_it_ends_the_traces_of_a_killed_one(resolved: Resolved, tmp_path: Path) -> None:
    """The check does it: the kernel of the host goes on tracing, and takes its CPU time from every load."""
    plain = replace(resolved, experiment=resolved.experiment.model_copy(update={"explain": None}))
    store, line = Store.create(tmp_path / "run"), Line(("no tracefs is mounted there", ""))
    prepare(session(plain, store, line))
    assert line.asked == ["exits_obstacle"]
    store.close()


def test_prices_are_measured_once_for_a_run(resolved: Resolved, tmp_path: Path) -> None:
    store, line = Store.create(tmp_path / "run"), Line(prices=[PRICE])
    prepare(session(resolved, store, line))
    assert [price.kind for price in store.exit_prices()["host"]] == ["cpuid"]
    prepare(session(resolved, store, line))
    assert line.asked.count("exit_prices") == 1
    store.close()


def test_a_host_without_a_price_list_is_traced_all_the_same(resolved: Resolved, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    prepare(session(resolved, store, Line()))
    assert store.exit_prices() == {"host": []}
    store.close()


class Measuring:
    """Makes explained trials as a host would: `exits` of those with these numbers fail."""

    def __init__(self, store: Store, failing: Collection[int] = ()) -> None:
        self.store, self.failing, self.numbers = store, failing, list[int]()

    def __call__(self, _session: Session, spec: TrialSpec, number: int, *_: object) -> None:
        self.numbers.append(number)
        failed = number in self.failing
        findings = (Finding(Code.TOOL_FAILED, detail="tracing exits: no"),) if failed else ()
        trial = replace(make_record(arm=spec.arm, attempt=number, findings=findings), scenario=spec.scenario)
        exits = () if failed else (ExitReason(reason="msr", count=1, time_us=1.0, away_us=0.0),)
        self.store.explained.append(ExplainedTrial(trial=trial, host="host", exits=exits))


@pytest.mark.parametrize(
    ("made", "failing", "numbers", "said"),
    [
        (0, (), [1, 2, 3], 0),
        (2, (), [3], 0),
        (3, (), [], 0),
        (0, (2,), [1, 2, 3, 4], 0),
        (0, (1, 2, 3, 4, 5), [1, 2, 3, 4, 5], 1),
    ],
)
def test_a_run_measures_the_explained_trials_that_it_lacks(
    resolved: Resolved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    made: int, failing: Collection[int], numbers: list[int], said: int,
) -> None:  # fmt: skip
    """Also after a kill; at most five, and then it says that it has none."""
    store, told = Store.create(tmp_path / "run"), list[Event]()
    measuring = Measuring(store, failing)
    run, ((arm, scenario),) = session(resolved, store, Line()), explained(resolved)
    for number in range(1, made + 1):
        measuring(run, TrialSpec(1, 1, arm, scenario), number)
    measuring.numbers.clear()
    monkeypatch.setattr("vmtoll.runner.explain._measure", measuring)
    explain(run, FixedBlocks([], 1.0), told.append)
    assert measuring.numbers == numbers
    assert [type(event) for event in told] == [NotMeasured] * said
    assert all("tracing exits: no" in str(event) for event in told)
    store.close()
