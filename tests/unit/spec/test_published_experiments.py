"""The experiments that repeat published ones: sound at both scales, and true to what was published."""

import csv
import re

import pytest

from vmtoll.model.columns import unit_of
from vmtoll.paths import PROJECT
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load

PAGE = (PROJECT / "docs" / "published-experiments.md").read_text(encoding="utf-8")
PUBLISHED = PROJECT / "results" / "published"
with (PUBLISHED / "figures.csv").open(encoding="utf-8", newline="") as handle:
    FIGURES = list(csv.DictReader(handle))
# From the unit of a published figure to that of the metric that a claim is about.
FACTORS = {
    ("1/s", "1/s"): 1, ("1", "1"): 1, ("percent", "%"): 1, ("ms", "ms"): 1, ("KiB", "KiB"): 1, ("MB/s", "MB/s"): 1,
    ("KB/s", "MB/s"): 1e-3, ("byte/s", "MB/s"): 1e-6, ("s", "s"): 1, ("s", "ms"): 1e3,
}  # fmt: skip


def published() -> list[str]:
    registry = Registry()
    return [name for name in registry.experiments() if "claims:" in registry.experiment_file(name).read_text()]


def at(name: str, scale: str) -> Resolved:
    return load(Registry().experiment_file(name), scale="full" if scale == "full" else "small")


def test_all_nine_exist() -> None:
    assert published() == [
        *("event-servers-2008", "image-offload-2007", "lua-2008", "mail-stack-2009", "metal-vs-kvm-2009"),
        *("one-core-four-cores-2009", "php-2006", "rate-sweep-2006", "small-servers-2003"),
    ]


@pytest.mark.parametrize("scale", ["full", "small"])
@pytest.mark.parametrize("name", published())
def test_each_is_sound_at_both_scales(name: str, scale: str) -> None:
    resolved = at(name, scale)
    experiment = resolved.experiment
    assert experiment.scale == scale
    assert experiment.question.endswith("?")
    assert experiment.source
    assert experiment.claims
    assert {"metal", "kvm-default"} <= set(experiment.environments)
    assert experiment.blocks >= (6 if scale == "full" else 3)
    seconds = experiment.warmup_s + experiment.duration_s
    assert seconds <= 2 if scale == "small" else seconds >= 10


@pytest.mark.parametrize("name", published())
def test_the_source_and_the_figures_are_those_of_the_data_package(name: str) -> None:
    figures = [row for row in FIGURES if row["experiment"] == name]
    experiment = at(name, "full").experiment
    if figures:
        assert experiment.source == figures[0]["source"]
    for claim in experiment.claims:
        unit = unit_of(claim.metric)
        known = [float(row["value"]) * FACTORS[row["unit"], unit] for row in figures if (row["unit"], unit) in FACTORS]
        for value in claim.published:
            assert any(value == pytest.approx(figure, rel=1e-9) for figure in known), f"{claim.says}: {value} {unit}"


@pytest.mark.parametrize("name", sorted({row["experiment"] for row in FIGURES}))
def test_every_published_experiment_is_repeated(name: str) -> None:
    assert name in published()


def test_the_table_of_the_page_names_each_once() -> None:
    rows = re.findall(r"\| \[`(.+)`\]\(\.\./workloads/experiments/\1\.yml\) \|", PAGE)
    assert sorted(rows) == published()
