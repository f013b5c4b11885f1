"""Guest profiles that experiments make, and the facts that their keys explain."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.snapshots import assert_snapshot
from vmtoll.guests import profiles
from vmtoll.model.errors import ExperimentError
from vmtoll.model.experiment import Experiment, ProfileVariant
from vmtoll.model.facts import ALWAYS_DIFFER, COMPARED, OF_A_CONTAINER, Kin
from vmtoll.report.words import factors_text, profile_text
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.profiles import EXPLAINED, environment_names, varied_profiles
from vmtoll.spec.vary import profile_keys

CLOUD = "kvm-default-kernel-cloud-amd64"
KEYS = {
    "question": "?", "purpose": "smoke", "servers": ["nginx"], "workloads": ["document-siege"], "blocks": 2,
    "warmup_s": 1, "duration_s": 1,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder."""
    (tmp_path / "lab.yml").write_text("all: {}\n")
    for name in ("experiments", "environments"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(folder: Path, name: str = "mine", **keys: object) -> Experiment:
    file = folder / f"experiments/{name}.yml"
    file.write_text(yaml.safe_dump(KEYS | keys, sort_keys=False))
    return load(file).experiment


def test_every_command_knows_the_guests_of_vary(folder: Path) -> None:
    assert CLOUD in environment_names(), "the shipped experiment `kernels`"
    made = experiment(folder, environments=["kvm-2009"], vary={"cmdline": [[], ["mitigations=off"]], "kernel": ["k"]})
    name = made.environments[1]
    assert name == "kvm-2009-cmdline-mitigations-off-kernel-k"
    assert {name, CLOUD} <= set(profiles.names())
    own, base = profiles.load(name), profiles.load("kvm-2009")
    assert own.kernel.package == "k"
    assert own.values["cmdline"] == [*base.values["cmdline"], "mitigations=off"]
    assert {key: value for key, value in own.values.items() if key not in ("kernel", "cmdline")} == {
        key: value for key, value in base.values.items() if key not in ("kernel", "cmdline")
    }


def test_two_experiments_that_make_one_name_differently_are_named(folder: Path) -> None:
    experiment(folder, environments=["kvm-default"], vary={"kernel": [None, "a-b"]})
    with pytest.raises(ExperimentError, match=r"kvm-default-kernel-a-b defines a different .*mine.yml"):
        experiment(folder, "other", environments=["kvm-default"], vary={"kernel": ["a.b"]})


def test_what_a_key_explains_is_declared_and_nothing_else(folder: Path) -> None:
    made = load(Registry().experiment_file("kernels")).experiment
    assert made.declared_differences == ["cmdline", "kernel", "mitigations", "memory_kib"]
    stored = folder / "experiments/stored.yml"
    stored.write_text(
        yaml.safe_dump({k: v for k, v in made.model_dump(mode="json").items() if k not in ("name", "scale")})
    )
    assert load(stored).experiment.declared_differences == made.declared_differences
    given = experiment(
        folder, environments=["kvm-default"], vary={"memory_mib": [None, 2048]}, declared_differences=["nic"]
    )
    assert given.declared_differences == ["nic"]
    with_other_key = experiment(folder, environments=["kvm-default"], vary={"nic_queues": [None, 2]})
    assert with_other_key.declared_differences == ["cmdline"], "another kernel is no matter of queues"
    pair = experiment(folder, environments=["kvm-default", "kvm-multiqueue"])
    assert pair.declared_differences == ["cmdline"]
    card = experiment(folder, environments=["kvm-default", "kvm-macvtap"])
    assert card.declared_differences == ["cmdline", "nic"]
    assert {fact.partition(": ")[0] for facts in EXPLAINED.values() for fact in facts} <= set(COMPARED)
    assert set(EXPLAINED) == set(profile_keys())


def test_a_release_explains_its_packages_and_servers(folder: Path) -> None:
    made = load(Registry().experiment_file("releases")).experiment
    of_servers = {"servers: *: version", "servers: *: binary_sha256", "servers: lighttpd: config_sha256"}
    assert {"release", "kernel", "packages", *of_servers} <= set(made.declared_differences)
    unexplained = {"sysctls", "cpu_model", "content_digest", "servers", "servers: nginx: config_sha256"}
    assert not unexplained & set(made.declared_differences)
    stored = folder / "experiments/stored.yml"
    stored.write_text(
        yaml.safe_dump({k: v for k, v in made.model_dump(mode="json").items() if k not in ("name", "scale")})
    )
    assert load(stored).experiment.declared_differences == made.declared_differences
    for suite in ("trixie", "bookworm"):
        (folder / f"environments/{suite}.yml").write_text(f"of: [kvm-default]\nrelease: {suite}\n")
    siblings = experiment(folder, environments=["bookworm", "trixie"])
    assert siblings.declared_differences == made.declared_differences, (
        "both build on one profile, which is not measured"
    )
    assert re.search("release: trixie .*bookworm", factors_text(siblings, "trixie", "bookworm"))


def test_a_profile_of_a_file_that_builds_on_another_is_a_factor_too(folder: Path) -> None:
    (folder / "environments/cloud.yml").write_text("of: [kvm-default]\nkernel: linux-image-cloud-amd64\n")
    made = experiment(folder, environments=["kvm-default", "cloud"])
    assert made.profiles == {"cloud": ProfileVariant(of="kvm-default", keys={"kernel": "linux-image-cloud-amd64"})}
    assert made.declared_differences == ["cmdline", "kernel", "mitigations", "memory_kib"]
    assert experiment(folder, environments=["metal", "cloud"]).declared_differences == ALWAYS_DIFFER
    strangers = experiment(folder, environments=["kvm-2009", "cloud"]).declared_differences
    assert {"kernel", "cpu_model", "nic", "memory_kib"} <= set(strangers), "two machine types differ in memory"
    assert not {"virtualization", "cpus_allowed", "governor", "release"} & set(strangers)
    (folder / "environments/of-others.yml").write_text("description: a guest of others\n")
    assert experiment(folder, environments=["kvm-default", "of-others"]).declared_differences == ALWAYS_DIFFER


def test_guests_and_containers_may_differ_in_less_from_their_kin_than_from_the_others(folder: Path) -> None:
    """Metal and a container have one kernel, two guests without another `kernel` have one each that is the same."""
    assert kin(folder, environments=["metal", "kvm-default"]) == (ALWAYS_DIFFER, [])
    pair = ["metal", "container"]
    assert kin(folder, environments=pair) == (OF_A_CONTAINER, [Kin(pair, OF_A_CONTAINER)])
    guests = ["kvm-default", "kvm-multiqueue"]
    of_both = [Kin(pair, OF_A_CONTAINER), Kin(guests, ["cmdline"])]
    assert kin(folder, environments=[*pair, *guests]) == (ALWAYS_DIFFER, of_both)
    assert kin(folder, environments=[*pair, *guests], declared_differences=["kernel"]) == (["kernel"], [])
    changes = {"thp": {"of": "kvm-default", "apply": "true"}}
    assert kin(folder, environments=["kvm-default", "thp"], changes=changes) == (ALWAYS_DIFFER, [])
    (folder / "environments/old.yml").write_text("of: [kvm-default]\nrelease: bookworm\n")
    declared, ((of_guests),) = kin(folder, environments=["metal", "kvm-default", "old"])
    assert {"release", "packages", "servers: *: binary_sha256"} <= set(of_guests.declared) <= set(declared)


def kin(folder: Path, **keys: object) -> tuple[list[str], list[Kin]]:
    """What an experiment declares of all of its environments, and of those that are kin."""
    file = folder / "experiments/mine.yml"
    file.write_text(yaml.safe_dump(KEYS | keys, sort_keys=False))
    resolved = load(file)
    return resolved.experiment.declared_differences, list(resolved.kin)


def test_the_factors_of_two_environments_in_words(folder: Path) -> None:
    vary = {"kernel": [None, "linux-image-a"], "cmdline": [[], ["x=1", "y"]], "halt_poll_ns": [None, 0]}
    made = experiment(folder, environments=["kvm-default"], vary=vary)
    said = {
        "a profile": profile_text(made.profiles["kvm-default-kernel-a"]),
        "one factor": factors_text(made, "kvm-default-kernel-a", "kvm-default"),
        "two factors": factors_text(made, "kernel-a-cmdline-x-1-y-halt-poll-ns-0", "kvm-default-kernel-a"),
    }
    changes = {"built": {"apply": "make install", "differs_in": ["binary"]}, "any": {"apply": "true"}}
    by_command = experiment(folder, environments=["metal", *changes], changes=changes)
    said["a command"] = factors_text(by_command, "built", "metal")
    assert not factors_text(by_command, "any", "metal")
    assert_snapshot(Path(__file__).with_name("snapshots") / "factors.txt", {"Factors": said})
    assert not factors_text(made, "kvm-default", "kvm-default")
    unknown = experiment(folder, environments=["kvm-default", "kvm-2009"])
    assert not factors_text(unknown, "kvm-2009", "kvm-default")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"a": {"of": "kvm-defualt", "keys": {"kernel": "k"}}}, r"profiles.a.of: unknown guest profile .*kvm-default"),
        ({"a": {"of": "kvm-default", "keys": {"kernal": "k"}}}, r"profiles.a.keys: unknown key 'kernal' .*'kernel'"),
        (
            {"kvm-ide": {"of": "kvm-default", "keys": {"kernel": "k"}}},
            "profiles.kvm-ide: a guest profile has this name",
        ),
        ({"a": {"of": "kvm-default", "keys": {"memory_mib": [1]}}}, r"profiles.a.keys: .*memory_mib: \[1\] is no text"),
        (
            {"b": {"of": "kvm-default", "keys": {"kernel": "k"}}},
            "profiles.b: is not one of `environments`; add it there",
        ),
    ],
)
def test_profiles_that_make_no_sense(folder: Path, keys: dict[str, object], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        experiment(folder, environments=["kvm-default", *(name for name in keys if name != "b")], profiles=keys)


def test_two_profiles_that_differ_in_nothing_are_named(folder: Path) -> None:
    cloud = "of: [kvm-default]\nkernel: linux-image-cloud-amd64\n"
    for name, text in {"a": cloud, "b": cloud, "same": "of: [kvm-default]\n", "x": "", "y": ""}.items():
        (folder / f"environments/{name}.yml").write_text(f"description: {name}\n{text}")
    for pair, said in ({"a": "b"}, "a and b"), ({"kvm-default": "same"}, "kvm-default and same"):
        with pytest.raises(ExperimentError, match=f"{said} are identical"):
            experiment(folder, environments=[*pair, *pair.values()])
    assert experiment(folder, environments=["x", "y"]), "guests of others, of which no profile says what they are"


@pytest.mark.parametrize("vary", [{"memory_mib": [None, 1024]}, {"nic_queues": [1, None], "memory_mib": [1024, 2048]}])
def test_a_value_that_is_the_default_makes_no_other_guest(folder: Path, vary: dict[str, list[object]]) -> None:
    with pytest.raises(ExperimentError, match=r"environments: the profiles kvm-default.* are identical"):
        experiment(folder, environments=["kvm-default"], vary=vary)


def test_a_machine_type_that_libvirt_does_not_know_is_refused(folder: Path) -> None:
    (folder / "environments/micro.yml").write_text("of: [kvm-default]\nmachine: {kvm: 'microvm,rtc=on', tcg: q35}\n")
    way_out = "knows no microvm; .*vmtoll_qmp_socket"
    with pytest.raises(ExperimentError, match=f"environments/micro.yml: machine: .*{way_out}"):
        experiment(folder, environments=["metal", "micro"])
    with pytest.raises(ExperimentError, match=f"mine.yml: profiles.*machine: .*{way_out}"):
        experiment(folder, environments=["kvm-default"], vary={"machine": [None, "microvm"]})
    with pytest.raises(ExperimentError, match=f"micro.yml: machine: .*{way_out}"):
        profiles.load("micro")


def test_an_experiment_that_cannot_be_read_hides_no_profile(folder: Path) -> None:
    (folder / "experiments/broken.yml").write_text("vary: {kernel: [1.5]}\nenvironments: [kvm-default]\n")
    (folder / "experiments/no-yaml.yml").write_text("vary: [\n")
    assert CLOUD in varied_profiles(Registry().paths["experiment"])
