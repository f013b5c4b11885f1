"""The experiments that repeat published ones: sound at both scales, and true to what was published."""

import csv
import re

import pytest

from vmtoll.analysis.published import COUNTERPARTS
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.table import unit_of
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


# Metric of a claim → those of figures.csv.
METRICS = {
    "throughput_rps": {"requests_per_second", "transaction_rate"},
    "throughput_mb_per_s": {"throughput", "transfer_rate"},
    "memory_pss_kib": {"memory"}, "processes": {"processes"}, "availability_pct": {"availability"},
    "first_response_mean_ms": {"first_response_mean"}, "connect_mean_ms": {"connect_mean"},
    "peak_goodput_rps": {"goodput_knee", "peak_goodput"}, "server_cpu_user_s": {"cpu_user"},
}  # fmt: skip


def is_about(row: dict[str, str], side: ClaimSide, metric: str) -> bool:
    """Return whether a published figure is that of this side of a claim: its server, place, users and metric."""
    servers = {side.server} if isinstance(side.server, str) else set(side.server)
    stands_for = {
        part for each in (row["server"], *COUNTERPARTS.get(row["server"], ())) for part in each.split(" and ")
    }
    place = "localhost" if str(side.workload).endswith("-localhost") else side.environment
    users = re.search(r"-c (\d+)", row["load"])
    return (
        row["metric"] in METRICS[metric]
        and (row["server"] == "best" or bool(servers & stands_for))
        and row["environment"] == {"kvm-default": "kvm"}.get(str(place), place)
        and (side.users is None or users is None or int(users[1]) == side.users)
    )


@pytest.mark.parametrize("name", published())
def test_the_source_and_the_figures_are_those_of_the_data_package(name: str) -> None:
    """Each figure of a claim is the one that was published of that side, in the unit of the claim's metric."""
    figures = [row for row in FIGURES if row["experiment"] == name]
    experiment = at(name, "full").experiment
    if figures:
        assert experiment.source == figures[0]["source"]
    for claim in experiment.claims:
        unit = unit_of(claim.metric)
        for value, side in zip(claim.published, (claim.of, claim.over), strict=False):
            assert side is not None
            rows = [row for row in figures if (row["unit"], unit) in FACTORS and is_about(row, side, claim.metric)]
            known = [float(row["value"]) * FACTORS[row["unit"], unit] for row in rows]
            assert value in [pytest.approx(figure, rel=1e-9) for figure in known], f"{claim.says}: {value} {unit}"


@pytest.mark.parametrize("name", sorted({row["experiment"] for row in FIGURES}))
def test_every_published_experiment_is_repeated(name: str) -> None:
    assert name in published()


def test_the_table_of_the_page_names_each_once() -> None:
    rows = re.findall(r"\| \[`(.+)`\]\(\.\./workloads/experiments/\1\.yml\) \|", PAGE)
    assert sorted(rows) == published()
