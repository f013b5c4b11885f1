"""The environments that `vary` stands for in an experiment's file."""

from typing import Any

import pytest

from vmtoll.model.experiment import Experiment
from vmtoll.model.inventory import HostTuning
from vmtoll.spec.vary import expand, profile_keys, varied

KEYS: dict[str, Any] = {
    "name": "x", "question": "?", "servers": ["nginx"], "workloads": ["site-steady"], "environments": ["kvm-default"],
    "blocks": 6, "warmup_s": 1, "duration_s": 1,
}  # fmt: skip
FACTORS: dict[str, Any] = {
    "halt_poll_ns": [0, 200000], "ksm": [True, None], "net.ipv4.tcp_congestion_control": ["cubic", None],
}  # fmt: skip


def read(**keys: Any) -> Experiment:
    return Experiment(**expand(KEYS | keys))


def test_every_combination_is_an_environment_named_after_its_values() -> None:
    made = read(vary=FACTORS)
    assert len(made.environments) == 8
    assert made.baseline_arm.environment == "halt-poll-ns-0-ksm-on-tcp-congestion-control-cubic"
    change = made.changes["halt-poll-ns-0-ksm-on-tcp-congestion-control-cubic"]
    assert change.values == {"halt_poll_ns": 0, "ksm": "on"}
    assert change.sysctls == {"net.ipv4.tcp_congestion_control": "cubic"}
    assert {change.of for change in made.changes.values()} == {"kvm-default"}


KERNELS = {"kernel": ["linux-image-6.12.1-amd64", "linux-image-6.12.2-amd64"]}


@pytest.mark.parametrize(
    "factors",
    [FACTORS, {"ksm": ["on"]}, {"ksm": [None, "on"]}, KERNELS, {**KERNELS, "ksm": ["on"]}, {"cmdline": [["x"]]}],
)
def test_a_stored_experiment_is_read_as_it_is(factors: dict[str, Any]) -> None:
    """With a single combination too: it has one environment, which is no machine's."""
    made = read(vary=factors)
    stored = made.model_dump(mode="json")
    assert Experiment(**stored) == made
    assert expand(stored) == stored, "also as a file"


def test_a_combination_without_values_is_the_machine_itself() -> None:
    made = read(vary={"ksm": [None, "on"]})
    assert made.environments == ["kvm-default", "ksm-on"]
    assert list(made.changes) == ["ksm-on"]
    assert varied("metal", {"ksm": [None]}) == (["metal"], {}, {})


def test_keys_of_profiles_are_guests_of_their_own_and_settings_change_them() -> None:
    made = read(vary={"kernel": [None, "linux-image-cloud-amd64"], "cmdline": [[], ["mitigations=off"]], "ksm": ["on"]})
    assert made.environments == [
        "ksm-on", "cmdline-mitigations-off-ksm-on", "kernel-cloud-amd64-ksm-on",
        "kernel-cloud-amd64-cmdline-mitigations-off-ksm-on",
    ]  # fmt: skip
    both = "kvm-default-kernel-cloud-amd64-cmdline-mitigations-off"
    assert made.machine_of(made.environments[-1]) == both
    assert made.profiles[both].of == "kvm-default"
    assert made.profiles[both].keys == {"kernel": "linux-image-cloud-amd64", "cmdline": ["mitigations=off"]}
    assert made.machine_of("ksm-on") == "kvm-default" and "kvm-default" not in made.profiles


def test_no_factor_is_a_key_of_profiles_and_a_setting() -> None:
    assert not set(profile_keys()) & set(HostTuning.model_fields)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"vary": {"halt_pol_ns": [1, 2]}}, "vary: unknown factor 'halt_pol_ns' (did you mean 'halt_poll_ns'?)"),
        ({"vary": {"ksm": [["on"]]}}, "vary.ksm: ['on'] is not a text or a number"),
        ({"vary": {"kernel": [{"a": 1}]}}, "vary.kernel: {'a': 1} is not a text or a number"),
        ({"vary": {"cmdline": [{"a": 1}]}}, "vary.cmdline: {'a': 1} is not a list of texts"),
        ({"vary": {"ksm": []}}, "vary.ksm: give a list of values"),
        ({"vary": {"ksm": "on"}}, "vary.ksm: give a list of values"),
        ({"vary": {"ksm": ["on"]}, "environments": ["metal", "kvm-default"]}, "vary: it needs one environment"),
        ({"vary": {"ksm": ["on"]}, "changes": {"a": {"apply": "x"}}}, "and neither `changes` nor `profiles`"),
        ({"vary": {"kernel": [6.1, 6.12]}}, "vary.kernel: 6.1 is a number, and YAML drops its zeros; quote it"),
        ({"vary": {"kernel": ["a b", "a-b"]}}, "two combinations would be named kvm-default-kernel-a-b"),
        ({"vary": {"kernel": ["x" * 60]}}, "is longer than 63 characters; write a separate profile for this guest"),
        ({"vary": {"ksm": ["on", True]}}, "vary: two combinations are identical, both are ksm-on; remove a value"),
        ({"vary": {"cmdline": [[], None]}}, "two combinations are identical, both are kvm-default"),
        ({"vary": {"kernel": ["x"]}, "environments": ["metal"]}, "vary.kernel: metal has no guest profile"),
    ],
)
def test_factors_that_make_no_sense(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as refused:
        read(**keys)
    assert said in str(refused.value)
