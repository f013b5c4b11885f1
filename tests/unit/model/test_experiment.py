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
