"""A workload's file: read, checked against its kind, and against what its tools can do."""

from pathlib import Path

from pydantic import ValidationError

from workloads import tools
from workloads.runner.beside import Beside, mistaken_tool
from workloads.runner.documents import check_names, mistake, read
from workloads.runner.errors import ExperimentError
from workloads.runner.registry import Registry, unknown
from workloads.runner.workload import KINDS, ClosedWorkload, MailWorkload, OpenWorkload, Workload
from workloads.tools import Adapter


def load_workload(path: Path, registry: Registry) -> Workload:
    """Read and check a workload. Raises ExperimentError."""
    data = read(path)
    kind = data.get("kind", "closed")
    if kind not in KINDS:
        raise ExperimentError(f"{path}: kind: {unknown('kind', kind, list(KINDS))}")
    model = KINDS[kind]
    try:
        workload = model(name=path.stem, **data)
    except ValidationError as error:
        raise mistake(path, model, error) from None
    check_names(path, "site", "site", [workload.site], registry.sites())
    for key, name in (("tool", workload.tool), ("twin", workload.twin)):
        if name is not None:
            _check_tool(path, key, name, workload, kind, registry)
    if isinstance(workload, Beside):
        _check_beside(path, workload, kind, registry)
    if isinstance(workload, ClosedWorkload | OpenWorkload) and workload.capacity:
        _check_tool(path, "capacity.tool", workload.capacity.tool, workload, "closed", registry)
    return workload


def _check_beside(path: Path, workload: Workload, kind: str, registry: Registry) -> None:
    """What stands beside the load fits the rest of the workload, and its tools can do it. Raises ExperimentError."""
    if not isinstance(workload, Beside):
        return
    if wrong := workload.misplaced(workload.client, workload.twin, workload.page, shares=bool(workload.capacity)):
        raise ExperimentError(f"{path}: {wrong}")
    adapters = {name: tools.get(name, registry.tools_folder()) for name in registry.tools()}
    users = workload.users if isinstance(workload, ClosedWorkload) else None
    for key, name in (("tool", workload.tool), ("twin", workload.twin)):
        if name and (why := mistaken_tool(workload, adapters[name], users)):
            able = ", ".join(n for n, a in adapters.items() if not mistaken_tool(workload, a, users) and _fits(a, kind))
            raise ExperimentError(f"{path}: {key}: {name} {why}; allowed: {able or 'none'}")
    if workload.neighbour:
        _check_tool(path, "neighbour.tool", workload.neighbour.tool, workload, "rate", registry)
        if not tools.ends(adapters[workload.neighbour.tool]):
            able = ", ".join(n for n, a in adapters.items() if tools.ends(a))
            raise ExperimentError(
                f"{path}: neighbour.tool: {workload.neighbour.tool} cannot be ended while it sends; allowed: {able}"
            )


def _fits(adapter: Adapter, kind: str) -> bool:
    if tools.mail_protocols(adapter):
        return False
    return adapter.CLOSED_LOOP if kind == "closed" else not adapter.REFUSED_FOR_TAILS


def _check_tool(path: Path, key: str, name: str, workload: Workload, kind: str, registry: Registry) -> None:
    """The tool can do a load of this kind, in the way that the workload wants it."""
    check_names(path, key, "tool", [name], registry.tools())
    adapters: dict[str, Adapter] = {n: tools.get(n, registry.tools_folder()) for n in registry.tools()}
    adapter = adapters[name]
    if isinstance(workload, MailWorkload):
        if workload.protocol not in tools.mail_protocols(adapter):
            able = ", ".join(n for n, a in adapters.items() if workload.protocol in tools.mail_protocols(a))
            raise ExperimentError(f"{path}: {key}: {name} does not speak {workload.protocol}; allowed: {able}")
        return
    if tools.mail_protocols(adapter):
        able = ", ".join(n for n, a in adapters.items() if not tools.mail_protocols(a))
        raise ExperimentError(f"{path}: {key}: {name} is for `kind: mail`; allowed: {able}")
    if kind == "ramp" and not adapter.OPEN_LOOP:
        able = ", ".join(n for n, a in adapters.items() if a.OPEN_LOOP)
        raise ExperimentError(f"{path}: {key}: {name} knows users only, not rates; allowed: {able}")
    if kind in {"rate", "sweep", "search"} and adapter.REFUSED_FOR_TAILS:
        honest = ", ".join(n for n, a in adapters.items() if not a.REFUSED_FOR_TAILS)
        raise ExperimentError(
            f"{path}: {key}: {name} is refused for tails: {adapter.REFUSED_FOR_TAILS}; allowed: {honest}"
        )
    if kind == "closed" and not adapter.CLOSED_LOOP:
        able = ", ".join(n for n, a in adapters.items() if a.CLOSED_LOOP)
        raise ExperimentError(f"{path}: {key}: {name} knows rates only, not users; allowed: {able}")
    if not workload.keep_alive and not adapter.CAN_CLOSE:
        raise ExperimentError(f"{path}: {key}: {name} cannot do keep_alive: false")
    if adapter.ONE_PAGE and workload.page is None:
        raise ExperimentError(f"{path}: page: {name} asks for one page only; name a file of the site {workload.site}")
