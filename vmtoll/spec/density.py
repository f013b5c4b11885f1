"""`density` of an experiment's file: the scenarios that it stands for, and what its tiles must be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmtoll.model.density import Density
from vmtoll.model.errors import ExperimentError
from vmtoll.model.experiment import Experiment
from vmtoll.model.load import LoadKind
from vmtoll.model.trial import MachineKind
from vmtoll.model.workload import MailWorkload, RateWorkload, Workload

PROTOCOLS = ("submission", "imap", "pop3")


def expand(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with the first tile's workload in `workloads`; without `density` the same one. Raises ValueError."""
    density = document.get("density")
    if not isinstance(density, Mapping):
        return document
    tiles = density.get("tiles")
    first = tiles[0] if isinstance(tiles, list) and tiles else None
    name = first.get("workload") if isinstance(first, Mapping) else None
    if document.get("workloads") not in (None, [name]):
        raise ValueError("density: its tiles name the workloads; leave `workloads` out")
    return {"noise_floor": None, **document, "workloads": [name or "idle"]}


def check(path: Path, experiment: Experiment) -> None:
    """Raise ExperimentError for keys that do not go with `density`."""
    if not experiment.density:
        return
    other_keys = ("service", "during", "tuning_steps", "claims", "users", "explain")
    if any(getattr(experiment, key) for key in other_keys):
        raise ExperimentError(
            "density: goes with neither service, during, tuning_steps, claims, users nor explain; use a "
            "separate experiment",
            path,
        )
    for name in (name for name in experiment.environments if experiment.kind_of(name) is not MachineKind.GUEST):
        raise ExperimentError(f"density: {name} carries no guests; leave it out of `environments`", path)
    if experiment.noise_floor:
        raise ExperimentError("density: noise_floor: a number of guests has no A/A control; leave it out", path)
    if len(experiment.servers) > 1:
        raise ExperimentError("density: servers: name one, which all guests with pages run", path)
    if not experiment.pause_idle_guests:
        raise ExperimentError(
            "density: pause_idle_guests: guests beyond the number under load must not run; leave it out", path
        )


def workloads_of(path: Path, density: Density, workloads: Mapping[str, Workload]) -> dict[str, Workload]:
    """These workloads, of which the first tile's has a load for each number of guests. Raises ExperimentError."""
    for index, tile in enumerate(density.tiles):
        if tile.workload:
            _check_tile(path, f"density.tiles[{index}]", workloads[tile.workload], is_mail=tile.is_mail)
    first = workloads[density.workload].model_copy(
        update={"guests": list(range(1, density.at_most + 1)), "crosscheck": None}
    )
    return {**workloads, density.workload: first}


def _check_tile(path: Path, where: str, workload: Workload, *, is_mail: bool) -> None:
    """Raise ExperimentError unless this load can go on beside others, and tells when its answers came."""
    name = workload.name
    if isinstance(workload, MailWorkload):
        if not is_mail:
            raise ExperimentError(f"{where}: {name} is mail: give its server, rate_rps and deadline_ms", path)
        if workload.protocol not in PROTOCOLS:
            raise ExperimentError(
                f"{where}: {name} speaks {workload.protocol}, whose tool does not log when answers came; "
                f"allowed: {', '.join(PROTOCOLS)}",
                path,
            )
        return
    if is_mail:
        raise ExperimentError(
            f"{where}: server: {name} is for pages, which run on the server in `servers`; leave it out", path
        )
    if not isinstance(workload, RateWorkload) or workload.tool != "vegeta":
        raise ExperimentError(
            f"{where}: {name} is not an open loop of vegeta at one rate (`kind: rate`); choose another", path
        )
    if workload.loads[0].kind is not LoadKind.RATE:
        raise ExperimentError(
            f"{where}: {name} has a share of a capacity; each guest needs its own load, `rate_rps`", path
        )
    if workload.cold or workload.neighbour or workload.is_spread or workload.client == "localhost" or workload.cores:
        raise ExperimentError(
            f"{where}: {name} has cold, neighbour, guests, cores or client: localhost, which no guest's load has; "
            "choose another",
            path,
        )
    if workload.transport.tls:
        raise ExperimentError(f"{where}: {name} goes over TLS; vmtoll loads the guests of a density without it", path)
