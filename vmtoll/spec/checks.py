"""Whether what an experiment names fits together: claims and scenarios, servers and workloads, operations and loads.

Each check is a generator of mistakes; called with the experiment's file, it raises ExperimentError for the first one.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec

from vmtoll.model.change import SERVER_PARTS, is_sysctl
from vmtoll.model.errors import ExperimentError
from vmtoll.model.experiment import Experiment
from vmtoll.model.facts import COMPARED
from vmtoll.model.load import LoadKind
from vmtoll.model.run import Skipped
from vmtoll.model.table import columns_of
from vmtoll.model.trial import MachineKind, TrialRecord
from vmtoll.model.workload import (
    ClosedWorkload,
    MailWorkload,
    OpenWorkload,
    RateWorkload,
    SearchWorkload,
    SharedHostWorkload,
    Workload,
    listed,
)
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import check_names
from vmtoll.spec.server import ServerDefinition, read_servers

P = ParamSpec("P")
# Highest goodput of a rate sweep: the one metric of a claim that is not a column.
PEAK_GOODPUT = "peak_goodput_rps"
METRICS = [column.name for column in columns_of(TrialRecord) if column.kind in {"number", "integer"}] + [PEAK_GOODPUT]
# Files are named after environments, and `metal#2` is the A/A control of metal.
_NAME = re.compile(r"[^/#\s\x00-\x1f]([^/#\x00-\x1f]*[^/#\s\x00-\x1f])?")
# Protocols of mail whose tool logs when answers came.
TIMED_PROTOCOLS = ("submission", "imap", "pop3")


def check(mistakes: Callable[Concatenate[Path, P], Iterator[str]]) -> Callable[Concatenate[Path, P], None]:
    """Make a generator of mistakes a check."""

    @wraps(mistakes)
    def checked(path: Path, /, *args: P.args, **keys: P.kwargs) -> None:
        if mistake := next(mistakes(path, *args, **keys), None):
            raise ExperimentError(mistake, path)

    return checked


@check
def check_claims(
    path: Path,
    experiment: Experiment,
    servers: Sequence[str],
    environments: Sequence[str],
    workloads: Mapping[str, Workload],
) -> Iterator[str]:
    """Every name in every claim is one of the experiment's."""
    allowed = {"server": list(servers), "environment": list(environments), "workload": list(workloads)}
    for i, claim in enumerate(experiment.claims):
        check_names(path, f"claims[{i}].metric", "metric", [claim.metric], METRICS)
        for key, side in (("of", claim.of), ("over", claim.over)):
            for kind, names in allowed.items() if side else ():
                check_names(path, f"claims[{i}].{key}.{kind}", kind, list(listed(getattr(side, kind))), names)
            if side and side.users is not None:
                of = [workloads[name] for name in listed(side.workload)]
                yield from _users_mistakes(f"claims[{i}].{key}.users", side.users, of)


@check
def check_users(_: Path, key: str, users: int | list[int], workloads: Sequence[Workload]) -> Iterator[str]:
    """Each of these workloads has these numbers of users."""
    return _users_mistakes(key, users, workloads)


def _users_mistakes(key: str, users: int | list[int], workloads: Sequence[Workload]) -> Iterator[str]:
    for workload in workloads:
        counts = listed(workload.users) if isinstance(workload, ClosedWorkload | MailWorkload) else []
        users_text = f"has {', '.join(map(str, counts))}" if counts else "is not a closed loop"
        for count in listed(users):
            if count not in counts:
                yield f"{key}: {count}: the workload {workload.name} {users_text}"


@check
def check_environments(path: Path, experiment: Experiment, machines: list[str]) -> Iterator[str]:
    """Each environment is one of `machines`, or made out of one of them."""
    for i, name in enumerate(experiment.environments):
        if not _NAME.fullmatch(name):
            yield f"environments[{i}]: {name!r}: a name is not empty, and has no / and no #; give it another one"
    for name, variant in experiment.variants.items():
        key, kind = (f"changes.{name}", "change") if name in experiment.changes else (f"during.{name}", "operation")
        if name in machines:
            yield f"{key}: is a guest profile or metal; give the {kind} another name"
        check_names(path, f"{key}.of", "environment", [variant.of], machines)
    names = [*machines, *experiment.variants]
    check_names(path, "environments[]", "environment", experiment.environments, names)


def check_facts(path: Path, experiment: Experiment) -> None:
    """Raise ExperimentError unless each declared difference is a fact, or a part of one, as `servers: *: version`, and
    each change says by a fact, or a kernel parameter, what its command changes.
    """
    declared = experiment.declared_differences
    whole = [item for item in declared if ": " not in item]
    of_parts = list(dict.fromkeys(item.partition(": ")[0] for item in declared if item not in whole))
    for names in (whole, of_parts):
        check_names(path, "declared_differences[]", "fact", names, COMPARED)
    for name, change in experiment.changes.items():
        facts = [item.partition(": ")[0] for item in change.differs_in or () if not is_sysctl(item)]
        allowed = [*SERVER_PARTS, *COMPARED]
        check_names(path, f"changes.{name}.differs_in", "fact", list(dict.fromkeys(facts)), allowed)


@check
def check_loads(_: Path, experiment: Experiment, workloads: Mapping[str, Workload]) -> Iterator[str]:
    """With `during`, each load tells when its answers came, and no file's first read decides; with `explain` and
    `during` its requests are the same in each trial.
    """
    for name, workload in workloads.items() if experiment.during else ():
        if not isinstance(workload, OpenWorkload) or workload.tool != "vegeta":
            yield f"during: workload {name} is not an open-loop vegeta workload; `during` needs one"
        if isinstance(workload, SearchWorkload):
            yield f"during: {name} searches for its rate, so the sides would get different rates; use `kind: rate`"
        if workload.client == "localhost":
            yield f"during: {name} sends from the machine itself, which may stand still"
        if isinstance(workload, SharedHostWorkload) and (workload.cold or workload.is_spread):
            what = "reads each file once" if workload.cold else "spreads its load over several guests"
            yield f"during: {name} {what}, so it does not show what one guest's clients notice"
    for name, workload in workloads.items() if experiment.explain else ():
        if isinstance(workload, SearchWorkload):
            yield f"explain: {name} searches for a rate; choose a workload that has one"


@check
def check_kinds(
    _: Path, servers: Mapping[str, ServerDefinition], workloads: Mapping[str, Workload], registry: Registry
) -> Iterator[str]:
    """Mail goes to mail servers, page requests to the others, and bodies to servers that read them."""
    for server, definition in servers.items():
        for name, workload in workloads.items():
            requested = "mail" if isinstance(workload, MailWorkload) else "pages"
            if requested != definition.serves:
                yield f"servers: {server} serves {definition.serves}, the workload {name} is for {requested}"
            page = f"{workload.site}/{workload.page}"
            if workload.method == "POST" and definition.uploads != page:
                readers = [s.name for s in read_servers(registry.servers_folder()) if s.uploads == page]
                yield (
                    f"servers: {server} reads no bodies sent to {page}, as the workload {name} does; "
                    f"allowed: {', '.join(readers) or 'none'}"
                )


@check
def check_density(_: Path, experiment: Experiment) -> Iterator[str]:
    """The other keys go with `density`."""
    if not experiment.density:
        return
    other_keys = ("service", "during", "tuning_steps", "claims", "users", "explain")
    if any(getattr(experiment, key) for key in other_keys):
        yield (
            "density: goes with neither service, during, tuning_steps, claims, users nor explain; use a separate "
            "experiment"
        )
    for name in experiment.environments:
        if experiment.kind_of(name) is not MachineKind.GUEST:
            yield f"density: {name} carries no guests; leave it out of `environments`"
    if experiment.noise_floor:
        yield "density: noise_floor: a number of guests has no A/A control; leave it out"
    if len(experiment.servers) > 1:
        yield "density: servers: name one, which all guests with pages run"
    if not experiment.pause_idle_guests:
        yield "density: pause_idle_guests: guests beyond the number under load must not run; leave it out"


@check
def check_tile(_: Path, where: str, workload: Workload, *, is_mail: bool) -> Iterator[str]:
    """The load of a tile can go on beside others, and tells when its answers came."""
    name = workload.name
    if isinstance(workload, MailWorkload):
        if not is_mail:
            yield f"{where}: {name} is mail: give its server, rate_rps and deadline_ms"
        if workload.protocol not in TIMED_PROTOCOLS:
            yield (
                f"{where}: {name} speaks {workload.protocol}, whose tool does not log when answers came; "
                f"allowed: {', '.join(TIMED_PROTOCOLS)}"
            )
    elif is_mail:
        yield f"{where}: server: {name} is for pages, which run on the server in `servers`; leave it out"
    elif not isinstance(workload, RateWorkload) or workload.tool != "vegeta":
        yield f"{where}: {name} is not an open loop of vegeta at one rate (`kind: rate`); choose another"
    elif workload.loads[0].kind is not LoadKind.RATE:
        yield f"{where}: {name} has a share of a capacity; each guest needs its own load, `rate_rps`"
    elif workload.cold or workload.neighbour or workload.is_spread or workload.client == "localhost" or workload.cores:
        yield (
            f"{where}: {name} has cold, neighbour, guests, cores or client: localhost, which no guest's load has; "
            "choose another"
        )
    elif workload.transport.tls:
        yield f"{where}: {name} goes over TLS; vmtoll loads the guests of a density without it"


def unsupported_transports(servers: Sequence[ServerDefinition], workloads: Mapping[str, Workload]) -> list[Skipped]:
    """The servers, or single scenarios of a server, to skip: it cannot serve a workload's transport or streams."""
    skipped = []
    for definition in servers:
        reasons = {
            name: why
            for name, workload in workloads.items()
            if (why := definition.why_unsupported(workload.transport, workload.most_streams))
        }
        skipped += skipped_parts(definition.name, reasons, workloads)
    return skipped


def skipped_parts(server: str, reasons: Mapping[str, str], workloads: Iterable[str]) -> list[Skipped]:
    """Return the server to skip, if all workloads share one reason; else its workloads. `reasons`: workload → why."""
    distinct_reasons = set(reasons.values())
    if set(reasons) == set(workloads) and len(distinct_reasons) == 1:
        return [Skipped(server=server, why=distinct_reasons.pop())]
    return [Skipped(server=server, workload=name, why=why) for name, why in reasons.items()]
