"""The starts of each block, what an experiment may ask for, and machines that cannot be started."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from vmtoll.hypervisors.process import ProcessGuest
from vmtoll.machines.session import Session
from vmtoll.model.errors import ExperimentError
from vmtoll.model.first_answer import Way
from vmtoll.model.inventory import Inventory
from vmtoll.runner.first_answers import check_starts
from vmtoll.runner.plan import Start, expected_s, starts_of
from vmtoll.runner.requirements import check_inventory
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load
from vmtoll.spec.machines import from_data
from vmtoll.trial.first_answer import runtime_parts

DOCUMENT: dict[str, Any] = {
    "question": "?", "environments": ["metal", "kvm-default"], "servers": ["nginx"], "workloads": ["site-rate-100"],
    "blocks": 6, "warmup_s": 1, "duration_s": 8, "first_answer": {"of": ["boot", "resume"], "at_once": [1, 2]},
}  # fmt: skip


def read(tmp_path: Path, **keys: Any) -> Resolved:
    path = tmp_path / "starts.yml"
    path.write_text(yaml.safe_dump(DOCUMENT | keys))
    return load(path, Registry())


def inventory(*, is_seen: bool = True) -> Inventory:
    local = {"ansible_connection": "local"}
    known = {"vmtoll_kvm_host": "host", "vmtoll_domain": "guest"} if is_seen else {}
    hosts = {
        "client": local, "metal": local | {"vmtoll_environment": "metal"}, "host": local,
        "guest": local | {"vmtoll_environment": "kvm-default"} | known,
    }  # fmt: skip
    groups = {"clients": ["client"], "metal_hosts": ["metal"], "kvm_hosts": ["host"], "kvm_guests": ["guest"]}
    lists = {name: {"hosts": members} for name, members in groups.items()}
    return from_data({"_meta": {"hostvars": hosts}, **lists}, ["metal", "kvm-default"])


def test_a_container_runtime_is_started_in_its_own_way(tmp_path: Path) -> None:
    names = ["process", "runc", "kvm-default"]
    resolved = read(tmp_path, environments=names, first_answer={"of": ["start", "boot"]})
    assert {(start.environment, start.way) for start in starts_of(resolved, 7, 1)} == {
        ("process", "start"), ("runc", "start"), ("kvm-default", "boot"),
    }  # fmt: skip
    with pytest.raises(ExperimentError, match="of: kvm-default is a guest; add `boot`, `restore` or `resume`"):
        read(tmp_path, environments=names, first_answer={"of": ["start"]})
    with pytest.raises(ExperimentError, match="of: process is a container runtime; add `start`"):
        read(tmp_path, environments=names, first_answer={"of": ["boot"]})


@pytest.mark.parametrize(
    ("calls", "answer_s", "parts"),
    [
        ([], 0.2, {"server": 0.2}),
        ([(0.1, 0.3), (0.35, 0.45)], 0.6, {"engine": 0.15, "runtime": 0.3, "server": 0.15}),
        ([(0.1, 0.3), (0.35, 0.45)], 0.4, {"engine": 0.15, "runtime": 0.25, "server": 0.0}),
        ([(0.1, 0.3)], None, {}),
        (None, 0.6, {}),
    ],
)
def test_the_parts_of_a_start_add_up_to_its_answer(
    calls: list[tuple[float, float]] | None, answer_s: float | None, parts: dict[str, float]
) -> None:
    assert runtime_parts(calls, answer_s) == pytest.approx(parts)


def test_each_block_has_all_starts_of_guests_in_an_order_of_its_own(tmp_path: Path) -> None:
    resolved = read(tmp_path)
    assert resolved.guests == 2, "the number of guests that the environment needs"
    blocks = [starts_of(resolved, 7, block) for block in range(1, 7)]
    ways: list[tuple[Way, int]] = [("boot", 1), ("boot", 2), ("resume", 1), ("resume", 2)]
    assert {frozenset(block) for block in blocks} == {
        frozenset(Start("kvm-default", "nginx", way, count) for way, count in ways)
    }
    assert len({tuple(block) for block in blocks}) > 1
    assert blocks == [starts_of(resolved, 7, block) for block in range(1, 7)]
    without = read(tmp_path, first_answer=None)
    assert starts_of(without, 7, 1) == []
    assert expected_s(resolved) - expected_s(without) == pytest.approx(6 * (60 + 60 + 10 + 10))


def test_the_shipped_experiment_has_a_small_scale() -> None:
    small, full = (load(Registry().experiment_file("first-answer"), Registry(), scale) for scale in ("small", "full"))
    for resolved in (small, full):
        assert resolved.experiment.first_answer is not None
        assert set(resolved.experiment.first_answer.of) == {"boot", "restore", "resume"}
    assert len(starts_of(small, 1, 1)) == 3


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"first_answer": {"of": []}}, "first_answer.of"),
        ({"first_answer": {"of": ["reboot"]}}, "first_answer.of"),
        (
            {"first_answer": {"of": ["boot"], "at_once": [0]}},
            "first_answer.at_once: give numbers of guests from 1",
        ),
        ({"environments": ["metal"]}, "first_answer: metal is not started, and no environment is a guest"),
        (
            {"environments": ["kvm-default", "new"], "changes": {"new": {"of": "kvm-default", "apply": "true"}}},
            "first_answer: a machine with `changes` would boot without its change",
        ),
        (
            {"servers": ["postfix-dovecot"], "workloads": ["mail-smtp"]},
            "first_answer: postfix-dovecot serves mail, and the client asks for a page",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        read(tmp_path, **keys)
    assert said in str(refused.value)


def test_a_guest_whose_host_is_not_named_is_refused(tmp_path: Path) -> None:
    resolved = read(tmp_path)
    with pytest.raises(ExperimentError, match=r"what starts guest; .*vmtoll_kvm_host"):
        check_inventory(resolved, inventory(is_seen=False), Path("lab.yml"))
    check_inventory(resolved, inventory(), Path("lab.yml"))


class Line:
    """A guest's agent; `status`: that of each command."""

    def __init__(self, status: int) -> None:
        self.status = status

    def call(self, op: str, *_: Any, **__: Any) -> Any:
        return {"exit_status": self.status}


def test_guests_that_cannot_be_started_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    resolved = read(tmp_path)

    def session(on_host: Any, status: int = 0) -> Session:
        state = SimpleNamespace(
            resolved=resolved, inventory=inventory(), on_host=lambda _: on_host, line=lambda _: Line(status)
        )
        return cast(Session, state)

    guest = inventory().suts["kvm-default"]
    with pytest.raises(ExperimentError, match=r"first_answer: guest: .*cannot boot "):
        check_starts(session(ProcessGuest(guest, cast(Any, Line(0)))))
    with pytest.raises(ExperimentError, match=r"guest .*systemd, .* leave `boot`"):
        check_starts(session(None, status=1))
    check_starts(session(None))
