"""Read workloads from YAML, check them against the sites and load tools, and return types of vmtoll.model, or raise
one error.

A file defines one workload, or several by `variants`: a list of axes, each a mapping from suffixes to the keys that
they set. `page.yml` with the axes {4k, 100k} and {close, keep} defines page-4k-close, page-4k-keep, …; the
`description` of a variant is appended to the file's own.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from vmtoll import loadgen
from vmtoll.loadgen import Adapter
from vmtoll.model.errors import ExperimentError
from vmtoll.model.transport import Transport
from vmtoll.model.workload import (
    ClosedWorkload,
    MailWorkload,
    OpenWorkload,
    RampWorkload,
    RateWorkload,
    SearchWorkload,
    SharedHostWorkload,
    SweepWorkload,
    Workload,
    listed,
)
from vmtoll.spec.catalog import Registry, unknown
from vmtoll.spec.documents import Keys, check_names, read, validation_error

_SharedHost = ClosedWorkload | RateWorkload | SweepWorkload
_SUFFIX = re.compile(r"[a-z0-9][a-z0-9-]*")
KINDS: Mapping[str, type[Workload]] = {
    "closed": ClosedWorkload,
    "rate": RateWorkload,
    "sweep": SweepWorkload,
    "search": SearchWorkload,
    "ramp": RampWorkload,
    "mail": MailWorkload,
}


def names(registry: Registry) -> list[str]:
    """Names of all workloads, each variant by its own. Raises ExperimentError."""
    every = [name for file in registry.workloads() for name in _documents(registry.workload_file(file))]
    return list(dict.fromkeys(every))


def file_of(name: str, registry: Registry) -> Path | None:
    """The file of a workload or of a variant; None where there is no such workload. Raises ExperimentError."""
    stems = registry.workloads()
    if name in stems:
        return registry.workload_file(name)
    of_variants = (registry.workload_file(stem) for stem in stems if name.startswith(f"{stem}-"))
    return next((path for path in of_variants if name in _documents(path)), None)


def load_workloads(name: str, registry: Registry) -> dict[str, Workload]:
    """The workload of this name, or all variants of the file of this name; none if it is unknown.

    Raises ExperimentError.
    """
    if not (path := file_of(name, registry)):
        return {}
    documents, workloads = _documents(path), registry.workloads()
    if name != path.stem:
        return {name: _load(path, name, documents[name], registry)}
    # A file of the user's stands over a variant of its name.
    files = {variant: registry.workload_file(variant) if variant in workloads else path for variant in documents}
    documents |= {variant: _documents(file)[variant] for variant, file in files.items() if file != path}
    return {variant: _load(file, variant, documents[variant], registry) for variant, file in files.items()}


def _documents(path: Path) -> dict[str, Keys]:
    """Keys and values of each workload that a file describes, by name. Raises ExperimentError."""
    data = read(path)
    if "variants" not in data:
        return {path.stem: data}
    axes = data.pop("variants")
    if not isinstance(axes, list) or not axes or not all(isinstance(axis, dict) and axis for axis in axes):
        raise ExperimentError("variants: must be a list of mappings, each of suffixes to keys and values", path)
    for i, (suffix, keys) in ((i, item) for i, axis in enumerate(axes) for item in axis.items()):
        if not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
            raise ExperimentError(f"variants[{i}]: {suffix!r} must be lower-case letters, digits and hyphens", path)
        if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys):
            raise ExperimentError(f"variants[{i}].{suffix}: must be a mapping of keys to values", path)
    documents: dict[str, Keys] = {}
    for combination in itertools.product(*(axis.items() for axis in axes)):
        name = "-".join([path.stem, *(suffix for suffix, _ in combination)])
        if name in documents or path.with_stem(name).exists():
            raise ExperimentError(f"variants: there are two workloads {name}; rename one", path)
        document = dict(data)
        for _, keys in combination:
            document |= keys
        parts = [keys["description"] for keys in (data, *(keys for _, keys in combination)) if "description" in keys]
        documents[name] = document | ({"description": ", ".join(map(str, parts))} if parts else {})
    return documents


def _load(path: Path, name: str, data: Keys, registry: Registry) -> Workload:
    kind = data.get("kind", "closed")
    if kind not in KINDS:
        raise ExperimentError(f"kind: {unknown('kind', kind, list(KINDS))}", path)
    model, tools = KINDS[kind], _Tools(path, registry)
    if (
        kind in _RANDOM_BY_DEFAULT
        and "arrivals" not in data
        and tools.schedule(data.get("tool"), data.get("crosscheck"))
    ):
        data = data | {"arrivals": "poisson"}
    try:
        workload = model(name=name, **data)
    except ValidationError as error:
        raise validation_error(path, model, error) from None
    check_names(path, "site", "site", [workload.site], registry.sites())
    tools.check("tool", workload.tool, workload, kind)
    if workload.crosscheck:
        tools.check("crosscheck", workload.crosscheck, workload, kind)
    if isinstance(workload, SharedHostWorkload):
        _check_shared_host(path, workload, kind, tools)
    if isinstance(workload, ClosedWorkload | OpenWorkload) and workload.capacity:
        tools.check("capacity.tool", workload.capacity.tool, workload, "closed")
    return workload


# Kinds whose arrivals are random by default, if their tools can send at random.
_RANDOM_BY_DEFAULT = ("rate", "sweep", "search")


class _Tools:
    """All load tools; each check raises ExperimentError that lists the tools that would work."""

    def __init__(self, path: Path, registry: Registry) -> None:
        self.path = path
        self.adapters = {name: loadgen.get(name, registry.tools_folder()) for name in registry.tools()}

    def schedule(self, *names: object) -> bool:
        """Return whether each of these tools sends by a schedule; ignores None."""
        scheduling = {name for name, adapter in self.adapters.items() if adapter.schedules}
        return all(name in scheduling for name in names if name is not None)

    def refusal(self, key: str, name: str, why: str, able: Callable[[Adapter], bool]) -> ExperimentError:
        """Return an error that says why this tool cannot do it, and which tools can."""
        allowed = ", ".join(other for other, adapter in self.adapters.items() if able(adapter))
        return ExperimentError(f"{key}: {name} {why}; allowed: {allowed or 'none'}", self.path)

    def check(self, key: str, name: str, workload: Workload, kind: str) -> None:
        """Raise ExperimentError unless the tool can send a load of this kind, as the workload requires."""
        check_names(self.path, key, "tool", [name], list(self.adapters))
        adapter = self.adapters[name]
        if isinstance(workload, MailWorkload):
            protocol = workload.protocol
            if protocol not in adapter.mail_protocols:
                raise self.refusal(key, name, f"does not speak {protocol}", lambda a: protocol in a.mail_protocols)
            return
        if adapter.mail_protocols:
            raise self.refusal(key, name, "is for `kind: mail`", lambda a: not a.mail_protocols)
        if kind == "ramp" and not adapter.open_loop:
            raise self.refusal(key, name, "knows users only, not rates", lambda a: a.open_loop)
        if kind in {"rate", "sweep", "search"} and adapter.refused_for_tails:
            why = f"is refused for tails: {adapter.refused_for_tails}"
            raise self.refusal(key, name, why, lambda a: not a.refused_for_tails)
        if kind == "closed" and not adapter.closed_loop:
            raise self.refusal(key, name, "knows rates only, not users", lambda a: a.closed_loop)
        at_random = isinstance(workload, OpenWorkload) and workload.arrivals == "poisson"
        if at_random and key in ("tool", "crosscheck") and not adapter.schedules:
            why = "sends at even intervals alone, which is `arrivals: constant`"
            raise self.refusal(key, name, why, lambda a: a.schedules)
        if not workload.keep_alive and not adapter.can_close:
            raise ExperimentError(f"{key}: {name} cannot do keep_alive: false", self.path)
        if why := _cannot_reach(workload.transport, adapter):
            raise self.refusal(
                key, name, why, lambda a: not _cannot_reach(workload.transport, a) and _can_send(a, kind)
            )
        if workload.method == "POST" and not adapter.sends_bodies:
            raise self.refusal(key, name, "sends no bodies", lambda a: a.sends_bodies)
        if adapter.one_page and workload.page is None:
            raise ExperimentError(
                f"page: {name} asks for one page only; name a file of the site {workload.site}", self.path
            )


def _cannot_reach(transport: Transport, adapter: Adapter) -> str:
    """Reason why this tool cannot send by this transport; empty when it can."""
    if transport.tls and not adapter.tls:
        refused = adapter.refused_for_tls
        return f"is refused over TLS: {refused}" if refused else "does not speak TLS 1.3"
    if transport.http == "2" and not adapter.http2:
        return "does not speak HTTP/2"
    if transport.resumption and not adapter.resumes:
        return "does not resume TLS sessions"
    return ""


def _check_shared_host(path: Path, workload: _SharedHost, kind: str, tools: _Tools) -> None:
    """Raise ExperimentError unless guests, neighbour and cold caches fit the rest of the workload and its tools."""
    if contradiction := _contradiction(workload):
        raise ExperimentError(contradiction, path)
    for key, name in (("tool", workload.tool), ("crosscheck", workload.crosscheck)):
        if name and (why := _cannot_share_host(workload, tools.adapters[name])):
            raise tools.refusal(key, name, why, lambda a: not _cannot_share_host(workload, a) and _can_send(a, kind))
    if workload.neighbour:
        name = workload.neighbour.tool
        tools.check("neighbour.tool", name, workload, "rate")
        if not tools.adapters[name].interruptible:
            raise tools.refusal("neighbour.tool", name, "cannot be ended while it sends", lambda a: a.interruptible)


def _contradiction(workload: _SharedHost) -> str:
    """Return which keys contradict each other, and why; empty when none do."""
    if workload.client == "localhost" and (workload.is_spread or workload.neighbour):
        return "client: with `guests` or `neighbour` it must be remote: no guest stands for the others"
    if not workload.cold:
        return ""
    if workload.crosscheck:
        return "crosscheck: must be null with `cold: true`: what it asks for would be in the cache"
    if isinstance(workload, ClosedWorkload | OpenWorkload) and workload.capacity:
        return "cold: goes with rates only: the closed loop that a share is taken of would fill the server's caches"
    if workload.page:
        return "page: must not be given with `cold: true`: each file of the site is asked for once"
    return ""


def _cannot_share_host(workload: _SharedHost, adapter: Adapter) -> str:
    """Reason why this tool cannot do the workload's guests or cold caches; empty when it can."""
    users = max(listed(workload.users)) if isinstance(workload, ClosedWorkload) else None
    if workload.is_spread and (adapter.one_page or adapter.one_host):
        return "sends all to the host of its first URL, so that no load can be spread over guests"
    if workload.cold and adapter.at_random:
        return "draws its URLs at random, so that it cannot ask for each file once"
    if workload.cold and adapter.lockstep and users != 1:
        return "has all its users start at the same file, so that it asks for each file once with `users: 1` only"
    return ""


def _can_send(adapter: Adapter, kind: str) -> bool:
    if adapter.mail_protocols:
        return False
    return adapter.closed_loop if kind == "closed" else not adapter.refused_for_tails
