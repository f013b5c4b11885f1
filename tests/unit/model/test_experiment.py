"""Changes of an experiment that make no sense."""

from typing import Any

import pytest
from pydantic import ValidationError

from vmtoll.model.experiment import Experiment

KEYS: dict[str, Any] = {
    "name": "x", "question": "?", "servers": ["nginx"], "workloads": ["site-steady"], "environments": ["kvm-default"],
    "blocks": 6, "warmup_s": 1, "duration_s": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"changes": {"a": {}}}, "nothing would change"),
        ({"changes": {"a": {"sysctls": {"vm.swappiness": 1}, "boots": True}}}, "do not outlast a boot"),
        ({"changes": {"a": {"sysctls": {"vm.swappiness": 1}, "revert": "true"}}}, "revert: there is no apply"),
        (
            {"changes": {"a": {"sysctls": {"vm.swappiness": 1}, "differs_in": ["kernel"]}}},
            "differs_in: there is no apply",
        ),
        (
            {"changes": {"a": {"sysctls": {"swappiness": 1}}}},
            "'swappiness' is not a kernel parameter; give its full name",
        ),
        (
            {"changes": {"a": {"sysctls": {"vm.swappiness": None}}}},
            "vm.swappiness: None is not a value of a kernel param",
        ),
        ({"changes": {"a": {"sysctls": {"vm.swappiness": ""}}}}, "vm.swappiness: '' is not a value of a kernel param"),
        (
            {"changes": {"a": {"sysctls": {"vm.swappiness": True}}}},
            "vm.swappiness: True is not a value of a kernel param",
        ),
        (
            {
                "environments": ["metal", "a"],
                "changes": {"a": {"apply": "true", "settings": {"ksm": "on"}, "boots": True}},
            },
            "boots: settings of metal do not outlast its boot",
        ),
        (
            {"changes": {key: {"apply": "x"} for key in "ab"}, "environments": ["metal", "a", "b"]},
            "a and b are identical",
        ),
    ],
)
def test_changes_that_make_no_sense(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Experiment(**KEYS | keys)
    assert said in str(refused.value)
