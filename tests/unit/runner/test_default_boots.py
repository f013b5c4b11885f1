"""Several boots by default: where vmtoll may restart every machine, and the reason where it may not."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from tests.support.committed_run import DEMO
from tests.support.measured import plan
from tests.support.records import make_record
from vmtoll.commands.plans import boots_text, schedule
from vmtoll.commands.replay import preview
from vmtoll.model.errors import ExperimentError, InventoryError
from vmtoll.model.inventory import Inventory
from vmtoll.model.run import Manifest, OneBoot
from vmtoll.model.until import Until
from vmtoll.runner.plan import BOOT_S, restart_s
from vmtoll.runner.requirements import with_default_boots
from vmtoll.runner.run import (
    Plan,
    in_embedded_lab,
    on_machines,
    remaining_plan,
    same_experiment,
    with_recorded_restarts,
)
from vmtoll.runs.folder import read_manifest
from vmtoll.runs.store import Store
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load
from vmtoll.spec.machines import from_data

MACHINES = ["metal", "container", "kvm-default"]
DOCUMENT: dict[str, Any] = {
    "question": "?", "environments": MACHINES, "servers": ["nginx"], "workloads": ["site-rate-100"],
    "scales": {"full": {"blocks": 10}, "small": {"blocks": 8}}, "warmup_s": 1, "duration_s": 8,
}  # fmt: skip
REBOOT = {"vmtoll_reboot": [["systemctl", "reboot"]]}
HOSTS: dict[str, dict[str, Any]] = {
    "client1": {"ansible_host": "load.invalid"},
    "metal1": {"ansible_host": "big.invalid", "vmtoll_environment": "metal", **REBOOT},
    "box1": {"vmtoll_environment": "container", "vmtoll_container_host": "host1"},
    "guest1": {"vmtoll_environment": "kvm-default", "vmtoll_kvm_host": "host1", "vmtoll_domain": "web1"},
    "host1": {"ansible_host": "big.invalid", **REBOOT},
}
GROUPS = {
    "clients": ["client1"], "metal_hosts": ["metal1"], "containers": ["box1"], "kvm_guests": ["guest1"],
    "kvm_hosts": ["host1"],
}  # fmt: skip
LOCAL = {"ansible_connection": "local"}
Change = dict[str, dict[str, Any]]


def hostvars(changes: Change | None = None) -> dict[str, dict[str, Any]]:
    changed = {name: HOSTS[name] | (changes or {}).get(name, {}) for name in HOSTS}
    return {name: {k: v for k, v in variables.items() if v is not None} for name, variables in changed.items()}


def write_inventory(folder: Path, changes: Change | None = None) -> Path:
    path, hosts = folder / "lab.yml", hostvars(changes)
    path.write_text(
        yaml.safe_dump({group: {"hosts": {name: hosts[name] for name in names}} for group, names in GROUPS.items()})
    )
    return path


def inventory(changes: Change | None = None, environments: list[str] = MACHINES) -> Inventory:
    groups = {group: {"hosts": names} for group, names in GROUPS.items()}
    return from_data({"_meta": {"hostvars": hostvars(changes)}, **groups}, environments)


def experiment(folder: Path, **keys: Any) -> Path:
    path = folder / "shop.yml"
    path.write_text(yaml.safe_dump(DOCUMENT | keys))
    return path


def resolved(folder: Path, **keys: Any) -> Resolved:
    """The experiment at full scale; vmtoll reads all that it names only once."""
    if not keys:
        return _resolved()
    return load(experiment(folder, **keys), Registry(), "full")


@cache
def _resolved() -> Resolved:
    with TemporaryDirectory() as folder:
        return load(experiment(Path(folder)), Registry(), "full")


def test_five_boots_of_two_blocks_where_every_machine_may_be_restarted(tmp_path: Path) -> None:
    given = with_default_boots(resolved(tmp_path), inventory())
    assert (given.experiment.boots, given.experiment.blocks, given.one_boot) == (5, 10, None)
    assert [given.experiment.boot_of(block) for block in range(1, 11)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metal1": {"vmtoll_reboot": None}}, "metal1 may not be restarted (vmtoll_reboot)"),
        ({"host1": {"vmtoll_reboot": None}}, "host1 may not be restarted (vmtoll_reboot)"),
        ({"metal1": {**LOCAL, "vmtoll_reboot": None}}, "metal1 is this machine"),
        ({"metal1": LOCAL}, "metal1 is this machine"),
        ({"box1": LOCAL}, "box1 is this machine"),
        ({"host1": LOCAL}, "host1 is this machine"),
        ({"host1": {"vmtoll_tuning": {"governor": "performance"}}}, "host1 is tuned and a boot would undo that"),
        ({"metal1": {"vmtoll_tuning": {"turbo": "off"}}}, "metal1 is tuned and a boot would undo that"),
        ({"client1": {"ansible_host": "big.invalid"}}, "metal1 is the client's machine too"),
        ({"client1": {"vmtoll_container_host": "host1"}}, "metal1 is the client's machine too"),
        (
            {"metal1": {"ansible_host": "own.invalid"}, "client1": {"vmtoll_container_host": "host1"}},
            "host1 is the client's machine too",
        ),
        ({"client1": {"vmtoll_kvm_host": "host1"}, "metal1": {"ansible_host": "own.invalid"}},
         "host1 is the client's machine too"),
        ({"guest1": {"vmtoll_kvm_host": None, "vmtoll_domain": None}},
         "guest1 has no host in the inventory that vmtoll could restart"),
        ({"box1": {"vmtoll_container_host": None}}, "box1 has no host in the inventory that vmtoll could restart"),
        ({"guest1": {"vmtoll_domain": None, "vmtoll_unit": "web.service"}},
         "guest1 is a guest that vmtoll cannot stop and start (vmtoll_revive)"),
        ({"guest1": {"vmtoll_domain": None, "vmtoll_qmp_socket": "/run/web.qmp"}},
         "guest1 is a guest that vmtoll cannot stop and start (vmtoll_revive)"),
    ],
)  # fmt: skip
def test_one_boot_where_a_machine_may_not_be_restarted(tmp_path: Path, changes: Change, text: str) -> None:
    given = with_default_boots(resolved(tmp_path), inventory(changes))
    assert given.experiment.boots == 1
    assert given.one_boot is not None
    assert given.one_boot.text == text


@pytest.mark.parametrize(
    "changes",
    [
        {"vmtoll_domain": None, "vmtoll_vmid": 101},
        {"vmtoll_domain": None, "vmtoll_qmp_socket": "/run/web.qmp", "vmtoll_unit": "web.service"},
        {"vmtoll_domain": None, "vmtoll_qmp_socket": "/run/web.qmp", "vmtoll_revive": [["start-web"]]},
        {"vmtoll_domain": None, "vmtoll_unit": "web.service", "vmtoll_revive": [["start-web"]], **REBOOT},
    ],
)
def test_a_guest_of_any_monitor_that_the_inventory_stops_and_starts(tmp_path: Path, changes: dict[str, Any]) -> None:
    given = with_default_boots(resolved(tmp_path), inventory({"guest1": changes}))
    assert given.experiment.boots == 5


def test_a_host_of_containers_alone_is_not_restarted(tmp_path: Path) -> None:
    """`reboot` restarts metal and the hosts of guests."""
    machines = inventory({"metal1": {"ansible_host": "own.invalid"}}, ["metal", "container"])
    given = with_default_boots(resolved(tmp_path, environments=["metal", "container"]), machines)
    assert given.one_boot == OneBoot(
        machine="host1", why="carries containers alone and vmtoll restarts hosts of guests only"
    )
    beside = inventory({}, ["metal", "container"])
    assert with_default_boots(given, beside).experiment.boots == 5, "metal is the same machine"


LAB: Change = {name: {"vmtoll_lab": "embedded", "vmtoll_reboot": None} for name in HOSTS}


def test_the_embedded_lab_restarts_guest_and_container(tmp_path: Path) -> None:
    lab = LAB | {"host1": LAB["host1"] | LOCAL, "client1": LAB["client1"] | {"vmtoll_container_host": "host1"}}
    assert with_default_boots(resolved(tmp_path), inventory(lab)).experiment.boots == 5
    assert with_default_boots(resolved(tmp_path), None).experiment.boots == 5, "before it is up"
    remote = with_default_boots(resolved(tmp_path), inventory(LAB))
    assert remote.one_boot == OneBoot(machine="metal1", why="may not be restarted (vmtoll_reboot)")
    mixed = inventory(lab | {"metal1": {"vmtoll_reboot": None}})
    assert with_default_boots(resolved(tmp_path), mixed).experiment.boots == 1, "metal is a machine of another kind"
    tuned = inventory(lab | {"host1": lab["host1"] | {"vmtoll_tuning": {"turbo": "off"}}})
    assert with_default_boots(resolved(tmp_path), tuned).experiment.boots == 1


@pytest.mark.parametrize(
    ("keys", "boots", "text"),
    [
        ({"blocks": 6}, 1, "6 blocks are too few for 4 boots"),
        ({"blocks": 7}, 1, "7 blocks are too few for 4 boots"),
        ({"blocks": 8}, 4, None),
        ({"blocks": 9}, 4, None),
        ({"blocks": 24}, 5, None),
        ({"blocks": 8, "until": {"half_width_pct": 2, "at_most_min": 60}}, 4, None),
        ({"blocks": 10, "until": {"half_width_pct": 2, "at_most_min": 60}}, 5, None),
        ({"blocks": 9, "until": {"half_width_pct": 2, "at_most_min": 60}}, 1,
         "9 blocks up to the first look are not a multiple of 4"),
        ({"blocks": 12, "until": {"half_width_pct": 2, "at_most_min": 60}}, 1,
         "12 blocks up to the first look are not a multiple of 5"),
    ],
)  # fmt: skip
def test_boots_follow_from_the_blocks(tmp_path: Path, keys: dict[str, Any], boots: int, text: str | None) -> None:
    until = Until(**keys["until"]) if "until" in keys else None
    of_blocks = _resolved().experiment.model_copy(update={"blocks": keys["blocks"], "until": until})
    given = with_default_boots(replace(_resolved(), experiment=of_blocks), inventory())
    assert (given.experiment.boots, given.experiment.blocks) == (boots, keys["blocks"])
    assert (given.one_boot and given.one_boot.text) == text


def test_an_until_of_the_command_line_keeps_what_the_file_leaves_open(tmp_path: Path) -> None:
    until = Until(half_width_pct=2, at_most_min=60)
    machines = write_inventory(tmp_path)
    made = on_machines(plan(experiment(tmp_path), scale="full", until=until), machines)
    assert (made.resolved.experiment.boots, made.resolved.experiment.until) == (5, until)
    given = on_machines(plan(experiment(tmp_path, boots=1), scale="full", until=until), machines)
    assert given.resolved.experiment.boots == 1


@pytest.mark.parametrize(
    ("keys", "scale"),
    [({"boots": 1}, "full"), ({"boots": 3}, "full"), ({}, "small"), ({"scales": None, "blocks": 10}, "full")],
)
def test_what_is_set_is_left_and_other_scales_too(tmp_path: Path, keys: dict[str, Any], scale: Any) -> None:
    document = {key: value for key, value in (DOCUMENT | keys).items() if value is not None}
    file = tmp_path / "shop.yml"
    file.write_text(yaml.safe_dump(document))
    before = load(file, Registry(), scale)
    assert with_default_boots(before, inventory()) == before
    assert before.one_boot is None


def test_machines_that_a_change_boots_are_booted_by_it_alone(tmp_path: Path) -> None:
    changes = {"new": {"of": "kvm-default", "apply": "true", "revert": "true", "boots": True}}
    of_change = resolved(tmp_path, environments=["kvm-default", "new"], changes=changes)
    given = with_default_boots(of_change, inventory())
    assert given.one_boot == OneBoot(why="the change new boots its machine itself")
    changes["new"]["boots"] = False
    of_change = resolved(tmp_path, environments=["kvm-default", "new"], changes=changes)
    assert with_default_boots(of_change, inventory()).experiment.boots == 5


def test_the_machines_of_a_service_are_not_restarted(tmp_path: Path) -> None:
    address = {"old": "http://192.0.2.1", "new": "http://192.0.2.2"}
    service = {"name": "shop", "address": address, "urls": ["/"], "at_most_rps": 5}
    document = {
        key: value for key, value in DOCUMENT.items() if key not in ("environments", "servers", "workloads")
    } | {"environments": ["old", "new"], "service": service | {"loads": {"one": {"kind": "closed", "users": 1}}}}
    file = tmp_path / "shop.yml"
    file.write_text(yaml.safe_dump(document))
    given = with_default_boots(load(file, Registry(), "full"), inventory())
    assert given.one_boot == OneBoot(why="vmtoll does not restart the machines of a service")


def test_the_demo_has_one_boot() -> None:
    planned = in_embedded_lab(plan(Registry().experiment_file("demo"), scale="small"))
    assert (planned.resolved.experiment.boots, planned.restarts, boots_text(planned)) == (1, 0, "")
    assert in_embedded_lab(plan(Registry().experiment_file("demo"), scale="full")).resolved.experiment.boots == 1


@pytest.mark.parametrize(
    ("changes", "keys", "text"),
    [
        ({}, {}, "5 boots: 4 restarts of each machine under test and its host, for which the time counts 60 s each"),
        ({"host1": LOCAL}, {}, "one boot: host1 is this machine"),
        ({}, {"boots": 1}, ""),
        ({}, {"boots": 2}, "2 boots: 1 restart of each machine under test and its host, for which the time counts "
         "60 s each"),
    ],
)  # fmt: skip
def test_the_dry_run_says_what_boots_cost(tmp_path: Path, changes: Change, keys: dict[str, Any], text: str) -> None:
    planned = on_machines(plan(experiment(tmp_path, **keys), scale="full"), write_inventory(tmp_path, changes))
    assert boots_text(planned) == text


def test_a_dry_run_of_the_embedded_lab_says_that_its_host_stays(tmp_path: Path) -> None:
    planned = in_embedded_lab(plan(experiment(tmp_path), scale="full"))
    assert boots_text(planned) == (
        "5 boots: 4 restarts of guest and container (the host is not rebooted), for which the time counts 60 s each"
    )
    one = in_embedded_lab(plan(experiment(tmp_path, boots=1), scale="full"))
    assert planned.total_s == pytest.approx(one.total_s + 4 * BOOT_S)
    assert schedule(planned)["boots"] == {"count": 5, "restarts": 4, "restart_s": None, "why_one": None}


def begun(folder: Path, planned: Plan, boots_done: int, restarts_s: float, **changes: Any) -> Path:
    """A run of this plan, which was killed in the middle of a boot; its restarts took `restarts_s`."""
    run_dir = folder / "results" / "shop" / "20260101T000000Z-0000"
    run_dir.mkdir(parents=True)
    given = planned.resolved
    update = {"experiment": given.experiment, "workloads": dict(given.workloads), "site": given.site}
    update |= {"status": "running", "skipped": [], "lab": "hosts", "one_boot": given.one_boot, "order_seed": 1}
    recorded = read_manifest(DEMO).model_copy(update=update | changes)
    (run_dir / "run.json").write_text(recorded.model_dump_json(by_alias=True))
    facts = json.loads((DEMO / "hosts.json").read_text())["client"]
    (run_dir / "hosts.json").write_text(json.dumps(dict.fromkeys(HOSTS, facts)))
    store, now_s = Store(run_dir), 0.0
    for trial in [each for each in planned.trials if each.boot <= boots_done][:-1]:
        records = store.records()
        now_s += restarts_s if records and records[-1].boot < trial.boot else 0.5
        at = f"2026-01-01T{int(now_s // 3600):02d}:{int(now_s // 60) % 60:02d}:{now_s % 60:06.3f}+00:00"
        bare = make_record(trial.block, trial.order, arm=trial.arm, load=trial.scenario.load, measured={})
        store.append(
            replace(bare, scenario=trial.scenario, boot=trial.boot, started_at=at, loaded_s=9.0, fixed_cost_s=1.5)
        )
        now_s += 10.5
    store.close()
    return run_dir


def test_the_time_of_a_restart_is_that_of_an_earlier_run_on_these_machines(tmp_path: Path) -> None:
    machines = write_inventory(tmp_path)
    planned = on_machines(plan(experiment(tmp_path), scale="full", order_seed=1), machines)
    run_dir = begun(tmp_path, planned, 3, restarts_s=150.0)
    known = with_recorded_restarts(planned, [tmp_path / "no-run", run_dir])
    assert known.restart_s == pytest.approx(150.0)
    assert known.total_s == pytest.approx(planned.total_s + 4 * (150 - BOOT_S))
    assert boots_text(known) == (
        "5 boots: 4 restarts of each machine under test and its host, 10.0 minutes at 150 s each as in an earlier run"
    )
    others = json.loads((run_dir / "hosts.json").read_text())
    (run_dir / "hosts.json").write_text(json.dumps({"elsewhere": others["client1"]}))
    assert with_recorded_restarts(planned, [run_dir]) == planned, "of other machines"


def test_records_of_one_boot_tell_no_restart() -> None:
    assert restart_s([make_record(block) for block in range(1, 4)]) is None


def test_a_run_goes_on_with_its_boots(tmp_path: Path) -> None:
    """Also where the inventory would now keep one boot, or would now allow several."""
    machines, file = write_inventory(tmp_path), experiment(tmp_path)
    planned = on_machines(plan(file, scale="full", order_seed=1), machines)
    run_dir = begun(tmp_path, planned, 3, restarts_s=30.0)
    again = on_machines(plan(file, scale="full", resume=run_dir), machines)
    assert again.resolved.experiment.boots == 5
    assert again.trials == planned.trials
    assert same_experiment(read_manifest(run_dir), load(file, Registry(), "full"))
    left = remaining_plan(again, run_dir)
    assert (left.restarts, {trial.boot for trial in left.trials}) == (2, {3, 4, 5})
    assert with_recorded_restarts(left, [run_dir]).restart_s == pytest.approx(30.0)
    with pytest.raises(
        InventoryError, match=r"metal1 may not be restarted .*, and the run began with 5 boots; restore"
    ):
        on_machines(
            plan(file, scale="full", resume=run_dir), write_inventory(tmp_path, {"metal1": {"vmtoll_reboot": None}})
        )
    with pytest.raises(ExperimentError, match="has changed since the run began"):
        remaining_plan(plan(experiment(tmp_path, boots=1), scale="full", resume=run_dir), run_dir)


def test_a_run_with_one_boot_goes_on_with_one(tmp_path: Path) -> None:
    file = experiment(tmp_path)
    kept = on_machines(plan(file, scale="full"), write_inventory(tmp_path, {"host1": LOCAL}))
    run_dir = begun(tmp_path, kept, 1, restarts_s=30.0)
    again = on_machines(plan(file, scale="full", resume=run_dir), write_inventory(tmp_path))
    assert again.resolved.experiment.boots == 1
    assert again.resolved.one_boot == OneBoot(machine="host1", why="is this machine")
    (run_dir / "run.json").write_text((run_dir / "run.json").read_text().replace('"one_boot":{', '"was":{'))
    content = json.loads((run_dir / "run.json").read_text())
    del content["was"], content["experiment"]["boots"]
    (run_dir / "run.json").write_text(json.dumps(content))
    older = on_machines(plan(file, scale="full", resume=run_dir), write_inventory(tmp_path))
    assert (older.resolved.experiment.boots, older.resolved.one_boot) == (1, None), "begun before there was a default"


@pytest.fixture
def published(tmp_path: Path) -> Callable[..., Manifest]:
    """The run.json of a bundle at full scale, with these keys of its experiment."""

    def with_keys(**keys: Any) -> Manifest:
        given = resolved(tmp_path, environments=["metal", "kvm-default"])
        update = {"experiment": given.experiment.model_copy(update=keys), "workloads": dict(given.workloads)}
        manifest = read_manifest(DEMO).model_copy(update={**update, "site": given.site})
        return Manifest.model_validate_json(manifest.model_dump_json(by_alias=True))

    return with_keys


def test_a_replay_has_the_boots_of_the_record(tmp_path: Path, published: Callable[..., Manifest]) -> None:
    machines = write_inventory(tmp_path)

    def boots_of(manifest: Manifest, blocks: int | None = None) -> tuple[int, OneBoot | None]:
        again = preview(manifest, machines, blocks=blocks, resume=None).resolved
        return again.experiment.boots, again.one_boot

    assert boots_of(published()) == (1, None), "although these machines may be restarted"
    assert boots_of(published(boots=5)) == (5, None)
    assert boots_of(published(boots=5), blocks=3) == (3, None), "a boot needs a block"
    content = published().model_dump(mode="json", by_alias=True)
    del content["experiment"]["boots"]
    assert boots_of(Manifest.model_validate_json(json.dumps(content))) == (1, None), "a record without the key"
