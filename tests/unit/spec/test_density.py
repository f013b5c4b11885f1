"""Density in an experiment's file: its scenarios, what it refuses, and the machines of a trial."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from vmtoll.model.errors import ExperimentError
from vmtoll.runner.plan import schedule
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load

DOCUMENT: dict[str, Any] = {
    "question": "?", "environments": ["kvm-default"], "servers": ["nginx"], "blocks": 6, "warmup_s": 1, "duration_s": 8,
    "density": {"tiles": [{"workload": "site-rate-100"}, {"idle": True}], "at_most": 5},
}  # fmt: skip
MAIL = {"workload": "mail-submission", "server": "postfix-dovecot", "rate_rps": 2.0, "deadline_ms": 500.0}


def read(tmp_path: Path, **keys: Any) -> Resolved:
    path = tmp_path / "density.yml"
    path.write_text(yaml.safe_dump(DOCUMENT | keys))
    return load(path, Registry())


def density(*tiles: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"density": {"tiles": list(tiles), "at_most": 3, **keys}}


def test_each_number_of_guests_is_a_scenario_once_a_block_in_random_order(tmp_path: Path) -> None:
    resolved = read(tmp_path)
    trials = schedule(resolved, 3)
    orders = [[trial.scenario.load.guests or 0 for trial in trials if trial.block == block] for block in range(1, 7)]
    assert all(sorted(order) == [1, 2, 3, 4, 5] for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert {trial.scenario.load.value for trial in trials} == {100}
    assert resolved.guests == 5
    experiment = resolved.experiment
    assert experiment.noise_floor is None
    assert type(experiment).model_validate(experiment.model_dump(mode="json")) == experiment, "as it is stored"


def test_tiles_take_turns_and_bring_workloads_and_servers_of_their_own(tmp_path: Path) -> None:
    pages = {"workload": "page-hello-rate"}
    workload = {
        "description": "one page at a rate", "kind": "rate", "site": "pages", "page": "page-4k.html", "tool": "vegeta",
        "keep_alive": True, "rate_rps": 5, "deadline_ms": 50,
    }  # fmt: skip
    (tmp_path / "project" / "workloads" / "experiments").mkdir(parents=True)
    root = tmp_path / "project"
    registry = Registry()
    for name in ("server-builds", "vm-images"):
        (root / name).symlink_to(registry.root / name)
    (root / "workloads" / "sites").symlink_to(registry.root / "workloads" / "sites")
    (root / "workloads" / "mail-submission.yml").symlink_to(registry.root / "workloads" / "mail-submission.yml")
    (root / "vmtoll").mkdir()
    (root / "vmtoll" / "loadgen").symlink_to(registry.root / "vmtoll" / "loadgen")
    (root / "workloads" / "page-hello-rate.yml").write_text(yaml.safe_dump(workload))
    path = root / "workloads" / "experiments" / "mixed.yml"
    path.write_text(yaml.safe_dump(DOCUMENT | density(pages, MAIL, {"idle": True}, at_most=4)))
    resolved = load(path, Registry(root))
    assert list(resolved.workloads) == ["page-hello-rate", "mail-submission"]
    assert resolved.experiment.workloads == ["page-hello-rate"]
    assert resolved.servers == ["nginx"]
    assert resolved.all_servers == ["nginx", "postfix-dovecot"]
    assert resolved.experiment.density
    assert [tile.name for tile in resolved.experiment.density.of(4)] == [
        "page-hello-rate", "mail-submission", "idle", "page-hello-rate",
    ]  # fmt: skip


def test_settings_of_the_host_are_compared_at_every_number(tmp_path: Path) -> None:
    resolved = read(tmp_path, vary={"ksm": ["on", "off"]})
    assert resolved.environments == ["ksm-on", "ksm-off"]
    assert len(schedule(resolved, 1)) == 6 * 5 * 2


def test_the_experiment_of_the_lab() -> None:
    resolved = load(Registry().experiment_file("density"), Registry(), "small")
    assert resolved.guests == 3
    full = load(Registry().experiment_file("density"), Registry(), "full")
    assert set(full.workloads) == {"site-rate", "site-rate-100"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (density({"idle": True}), "the first guest must get pages"),
        (density(MAIL), "the first guest must get pages"),
        (density({}), "give either workload, or idle: true"),
        (density({"workload": "site-rate-100", "idle": True}), "give either workload, or idle: true"),
        (density({"workload": "site-rate-100", "rate_rps": 3}), "mail needs all three, other tiles none"),
        (density({"workload": "nowhere"}), "density.tiles[0].workload: unknown workload 'nowhere'"),
        (density({"workload": "site-rate-100"}, {**MAIL, "server": "x"}), "density.tiles[1].server: unknown server"),
        (density({"workload": "site-siege"}), "density.tiles[0]: site-siege is not an open loop of vegeta at one rate"),
        (density({"workload": "site-share"}), "each guest needs its own load, `rate_rps`"),
        (density({"workload": "site-rate-100"}, {"workload": "mail-imap"}), "mail-imap is mail: give its server"),
        (
            density({"workload": "site-rate-100"}, {**MAIL, "workload": "mail-smtp"}),
            "mail-smtp speaks smtp, whose tool does not log",
        ),
        (density({"workload": "site-rate-100"}, {**MAIL, "workload": "site-rate"}), "site-rate is for pages"),
        (density({"workload": "site-rate-100"}, MAIL), "they use the sites office, pages; a run uses one"),
        ({"workloads": ["site-siege"]}, "density: its tiles name the workloads; leave `workloads` out"),
        ({"environments": ["metal", "kvm-default"]}, "density: metal carries no guests"),
        ({"pause_idle_guests": False}, "guests beyond the number under load must not run"),
        ({"servers": ["nginx", "lighttz"]}, "density: servers: name one"),
        ({"noise_floor": {"environment": "kvm-default", "servers": ["nginx"]}}, "has no A/A control"),
        ({"during": {"do": "pause", "for_s": 1, "at_s": 1}}, "density: goes with neither service, during"),
        ({"explain": "exits"}, "users nor explain; use a separate experiment"),
        (density({"workload": "site-rate-100"}, at_most=0), "density.at_most"),
    ],
)
def test_refusals_name_file_key_and_the_way_out(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        read(tmp_path, **keys)
    assert said in str(raised.value)
    assert str(tmp_path / "density.yml") in str(raised.value)
