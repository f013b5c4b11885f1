"""Whether what an experiment names fits together: claims and scenarios, servers and workloads, operations and loads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vmtoll.model.change import SERVER_PARTS, Change, is_sysctl
from vmtoll.model.errors import ExperimentError
from vmtoll.model.experiment import Claim, Experiment
from vmtoll.model.facts import COMPARED
from vmtoll.model.run import Skipped
from vmtoll.model.table import columns_of
from vmtoll.model.trial import TrialRecord
from vmtoll.model.workload import (
    ClosedWorkload,
    MailWorkload,
    OpenWorkload,
    SearchWorkload,
    SharedHostWorkload,
    Workload,
    listed,
)
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import check_names
from vmtoll.spec.server import ServerDefinition, read_servers

# Highest goodput of a rate sweep: the one metric of a claim that is not a column.
PEAK_GOODPUT = "peak_goodput_rps"
METRICS = [column.name for column in columns_of(TrialRecord) if column.kind in {"number", "integer"}] + [PEAK_GOODPUT]


def check_claims(
    path: Path,
    claims: Sequence[Claim],
    servers: Sequence[str],
    environments: Sequence[str],
    workloads: Mapping[str, Workload],
) -> None:
    """Raise ExperimentError unless every name in every claim is one of the experiment's."""
    allowed = {"server": list(servers), "environment": list(environments), "workload": list(workloads)}
    for i, claim in enumerate(claims):
        check_names(path, f"claims[{i}].metric", "metric", [claim.metric], METRICS)
        for key, side in (("of", claim.of), ("over", claim.over)):
            if side is None:
                continue
            for kind, names in allowed.items():
                check_names(path, f"claims[{i}].{key}.{kind}", kind, list(listed(getattr(side, kind))), names)
            if side.users is not None:
                check_users(path, f"claims[{i}].{key}.users", side.users, [workloads[n] for n in listed(side.workload)])


def check_users(path: Path, key: str, users: int | list[int], workloads: Sequence[Workload]) -> None:
    """Raise ExperimentError unless each of these workloads has these numbers of users."""
    for workload in workloads:
        counts = listed(workload.users) if isinstance(workload, ClosedWorkload | MailWorkload) else []
        for count in listed(users):
            if count not in counts:
                users_text = f"has {', '.join(map(str, counts))}" if counts else "is not a closed loop"
                raise ExperimentError(f"{key}: {count}: the workload {workload.name} {users_text}", path)


# Files are named after environments, and `metal#2` is the A/A control of metal.
_NAME = re.compile(r"[^/#\s\x00-\x1f]([^/#\x00-\x1f]*[^/#\s\x00-\x1f])?")


def check_environments(path: Path, experiment: Experiment, machines: list[str]) -> None:
    """Raise ExperimentError unless each environment is one of `machines`, or made out of one of them."""
    for i, name in enumerate(experiment.environments):
        if not _NAME.fullmatch(name):
            raise ExperimentError(
                f"environments[{i}]: {name!r}: a name is not empty, and has no / and no #; give it another one", path
            )
    for name, variant in experiment.variants.items():
        key, kind = (f"changes.{name}", "change") if name in experiment.changes else (f"during.{name}", "operation")
        if name in machines:
            raise ExperimentError(f"{key}: is a guest profile or metal; give the {kind} another name", path)
        check_names(path, f"{key}.of", "environment", [variant.of], machines)
    check_names(
        path, "environments[]", "environment", experiment.environments, [*machines, *experiment.variants]
    )  # fmt: skip


def check_declared(path: Path, declared: Sequence[str]) -> None:
    """Raise ExperimentError unless each declared difference is a fact, or a part of one, as `servers: *: version`."""
    whole = [item for item in declared if ": " not in item]
    of_parts = list(dict.fromkeys(item.partition(": ")[0] for item in declared if item not in whole))
    for names in (whole, of_parts):
        check_names(path, "declared_differences[]", "fact", names, COMPARED)


def check_changes(path: Path, changes: Mapping[str, Change]) -> None:
    """Raise ExperimentError unless each change says by a fact, or a kernel parameter, what its command changes."""
    for name, change in changes.items():
        named = [item for item in change.differs_in or () if not is_sysctl(item)]
        facts = [item.partition(": ")[0] for item in named]
        check_names(
            path, f"changes.{name}.differs_in", "fact", list(dict.fromkeys(facts)), [*SERVER_PARTS, *COMPARED]
        )  # fmt: skip


def check_operations(path: Path, experiment: Experiment, workloads: Mapping[str, Workload]) -> None:
    """Raise ExperimentError for a load that cannot tell when its answers came, or that a file's first read decides."""
    for name, workload in workloads.items() if experiment.during else ():
        if not isinstance(workload, OpenWorkload) or workload.tool != "vegeta":
            raise ExperimentError(
                f"during: workload {name} is not an open-loop vegeta workload; `during` needs one", path
            )
        if isinstance(workload, SearchWorkload):
            raise ExperimentError(
                f"during: {name} searches for its rate, so the sides would get different rates; use `kind: rate`",
                path,
            )
        if workload.client == "localhost":
            raise ExperimentError(f"during: {name} sends from the machine itself, which may stand still", path)
        if isinstance(workload, SharedHostWorkload) and (workload.cold or workload.is_spread):
            what = "reads each file once" if workload.cold else "spreads its load over several guests"
            raise ExperimentError(f"during: {name} {what}, so it does not show what one guest's clients notice", path)


def check_explained(path: Path, experiment: Experiment, workloads: Mapping[str, Workload]) -> None:
    """Raise ExperimentError for a load whose requests are not the same in each trial."""
    for name, workload in workloads.items() if experiment.explain else ():
        if isinstance(workload, SearchWorkload):
            raise ExperimentError(f"explain: {name} searches for a rate; choose a workload that has one", path)


def check_kinds(
    path: Path, servers: Mapping[str, ServerDefinition], workloads: Mapping[str, Workload], registry: Registry
) -> None:
    """Raise ExperimentError unless mail goes to mail servers, page requests to the others, and bodies to servers that
    read them.
    """
    for server, definition in servers.items():
        serves = definition.serves
        for name, workload in workloads.items():
            requested = "mail" if isinstance(workload, MailWorkload) else "pages"
            if requested != serves:
                raise ExperimentError(
                    f"servers: {server} serves {serves}, the workload {name} is for {requested}", path
                )
            page = f"{workload.site}/{workload.page}"
            if workload.method == "POST" and definition.uploads != page:
                readers = [s.name for s in read_servers(registry.servers_folder()) if s.uploads == page]
                raise ExperimentError(
                    f"servers: {server} reads no bodies sent to {page}, as the workload {name} does; "
                    f"allowed: {', '.join(readers) or 'none'}",
                    path,
                )


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
