"""The verb `list`."""

from vmtoll.model.release import of_suite
from vmtoll.spec.catalog import Registry
from vmtoll.spec.server import read_server


def list_names() -> None:
    """List experiments, workloads, servers and environments."""
    registry = Registry()
    for kind in ("experiments", "workloads", "servers", "environments"):
        names = getattr(registry, kind)()
        print(f"{kind}: {', '.join(map(_with_releases, names) if kind == 'servers' else names)}")


def _with_releases(server: str) -> str:
    """The server's name, and which releases of Debian do not ship it."""
    absent = [f"not in {of_suite(suite).name}" for suite in read_server(server).not_in]
    return f"{server} ({', '.join(absent)})" if absent else server
