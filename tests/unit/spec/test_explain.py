"""`explain` in an experiment's file: what it explains, and mistakes in it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from vmtoll.commands.plans import plan_lines
from vmtoll.model.errors import ExperimentError
from vmtoll.model.trial import Arm
from vmtoll.runner.plan import EXPLAINED_TRIALS, expected_s, explained, schedule
from vmtoll.runner.run import plan
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load

DOCUMENT: dict[str, Any] = {
    "question": "?", "environments": ["metal", "kvm-default"], "servers": ["nginx"], "workloads": ["site-rate-100"],
    "blocks": 6, "warmup_s": 1, "duration_s": 8, "explain": "exits",
}  # fmt: skip


def read(tmp_path: Path, **keys: Any) -> Resolved:
    path = tmp_path / "explained.yml"
    path.write_text(yaml.safe_dump(DOCUMENT | keys))
    return load(path, Registry())


def test_guests_are_explained_and_the_blocks_stay_as_they_are(tmp_path: Path) -> None:
    with_it, without = read(tmp_path), read(tmp_path, explain=None)
    assert {arm for arm, _ in explained(with_it)} == {Arm("kvm-default")}
    assert explained(without) == []
    assert schedule(with_it, 1) == schedule(without, 1)
    assert expected_s(with_it) - expected_s(without) == pytest.approx(EXPLAINED_TRIALS * (1 + 8 + 1.5))


def test_a_plan_names_the_trials_of_their_own(tmp_path: Path) -> None:
    lines = list(plan_lines(plan(read(tmp_path, noise_floor=None)), resumed=False))
    assert any(line.startswith("then 3 trials in which exits ") for line in lines)
    assert "traced" not in "\n".join(plan_lines(plan(read(tmp_path, explain=None)), resumed=False))


def test_a_change_of_a_guest_is_explained_and_an_operation_is_not(tmp_path: Path) -> None:
    resolved = read(
        tmp_path,
        environments=["metal", "kvm-default", "polling", "pause"],
        changes={"polling": {"of": "kvm-default", "on": "host", "settings": {"halt_poll_ns": 0}}},
        during={"pause": {"of": "kvm-default", "do": "pause", "for_s": 0.4, "at_s": 3}},
    )
    assert [str(arm) for arm, _ in explained(resolved)] == ["kvm-default", "polling"]


def test_the_shipped_experiment_explains_its_guest() -> None:
    shipped = load(Registry().experiment_file("exits"), Registry(), "small")
    assert shipped.experiment.explained == ["kvm-default"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"environments": ["metal"]}, "no environment is one"),
        ({"explain": "everything"}, "explain: "),
        ({"workloads": ["site-search"]}, "searches for a rate"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError, match=words) as refused:
        read(tmp_path, **keys)
    assert "explained.yml" in str(refused.value)
    assert "explain" in str(refused.value)
