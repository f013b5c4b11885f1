"""Plan and measure experiments from a registry's files."""

from pathlib import Path

from vmtoll.model.event import Listener
from vmtoll.model.experiment import Scale
from vmtoll.model.until import Until
from vmtoll.runner import run as runner
from vmtoll.runner.blocks import Judge
from vmtoll.runner.run import Plan
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load


def plan(
    file: Path,
    registry: Registry | None = None,
    *,
    order_seed: int | None = None,
    scale: Scale | None = None,
    until: Until | None = None,
    resume: Path | None = None,
) -> Plan:
    return runner.plan(load(file, registry, scale), until=until, resume=resume, order_seed=order_seed)


def run(
    file: Path,
    inventory: Path,
    results: Path,
    resume: Path | None = None,
    *,
    listener: Listener | None = None,
    registry: Registry | None = None,
    scale: Scale | None = None,
    limit: str | None = None,
    until: Until | None = None,
    judge: Judge | None = None,
) -> Path:
    resolved = load(file, registry, scale)
    planned = runner.plan(resolved, inventory, limit, until=until, resume=resume)
    return runner.run(planned, results, resume, listener=listener, judge=judge)
