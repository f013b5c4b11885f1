"""Changes of an experiment, and the environments that `vary` makes."""

from typing import Any

import pytest
from pydantic import ValidationError

from vmtoll.model.experiment import Experiment, varied

KEYS: dict[str, Any] = {
    "name": "x", "question": "?", "servers": ["nginx"], "workloads": ["site-steady"], "environments": ["kvm-default"],
    "blocks": 6, "warmup_s": 1, "duration_s": 1,
}  # fmt: skip
FACTORS: dict[str, Any] = {
    "halt_poll_ns": [0, 200000],
    "ksm": [True, None],
    "net.ipv4.tcp_congestion_control": ["cubic", None],
}


def test_every_combination_is_an_environment_named_after_its_values() -> None:
    made = Experiment(**KEYS | {"vary": FACTORS})
    assert len(made.environments) == 8
    assert made.baseline_arm.environment == "halt-poll-ns-0-ksm-on-tcp-congestion-control-cubic"
    change = made.changes["halt-poll-ns-0-ksm-on-tcp-congestion-control-cubic"]
    assert change.values == {"halt_poll_ns": 0, "ksm": "on"}
    assert change.sysctls == {"net.ipv4.tcp_congestion_control": "cubic"}
    assert {change.of for change in made.changes.values()} == {"kvm-default"}
    assert Experiment(**made.model_dump(mode="json")) == made, "as it is stored"


def test_a_combination_without_values_is_the_machine_itself() -> None:
    made = Experiment(**KEYS | {"vary": {"ksm": [None, "on"]}})
    assert made.environments == ["kvm-default", "ksm-on"]
    assert list(made.changes) == ["ksm-on"]
    assert varied("metal", {"ksm": [None]}) == {"metal": None}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"vary": {"speed": [1, 2]}}, "no setting 'speed'; there are: governor"),
        ({"vary": {"ksm": []}}, "vary.ksm: give a list of values"),
        ({"vary": {"ksm": "on"}}, "vary.ksm: give a list of values"),
        ({"vary": {"ksm": ["on"]}, "environments": ["metal", "kvm-default"]}, "vary: it needs one environment"),
        ({"changes": {"a": {}}}, "nothing would change"),
        ({"changes": {"a": {"sysctls": {"vm.swappiness": 1}, "boots": True}}}, "do not outlast a boot"),
        ({"changes": {"a": {"sysctls": {"vm.swappiness": 1}, "revert": "true"}}}, "there is no apply to undo"),
        (
            {"changes": {key: {"apply": "x"} for key in "ab"}, "environments": ["metal", "a", "b"]},
            "a and b differ in nothing",
        ),
    ],
)
def test_changes_that_make_no_sense(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Experiment(**KEYS | keys)
    assert said in str(refused.value)
