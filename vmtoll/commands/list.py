"""The command `list`."""

from collections.abc import Iterator, Mapping, Sequence

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption
from vmtoll.model.release import Suite, release_of_suite
from vmtoll.paths import user_folder
from vmtoll.spec.catalog import Registry
from vmtoll.spec.profiles import environment_names
from vmtoll.spec.server import read_server

describe("list", "vmtoll list", "vmtoll list --json")

_KINDS = ("experiments", "workloads", "servers", "environments")


def list_names(as_json: JsonOption = False) -> None:
    """List experiments, workloads, servers and environments: those of your folder and those that vmtoll ships."""
    registry = Registry()
    names = {kind: getattr(registry, kind)() for kind in _KINDS} | {"environments": environment_names(registry)}
    own = registry.own()
    registry.say_hidden(own)
    not_in = {server: read_server(server).not_in for server in names["servers"]}
    folder = user_folder()
    if as_json:
        servers = [{"name": server, "not_in": list(suites)} for server, suites in not_in.items()]
        print_json(
            {**names, "servers": servers}
            | ({"folder": folder, "own": {f"{kind}s": names for kind, names in own.items()}} if folder else {})
        )
        return
    for kind, listed in names.items():
        texts = [_with_releases(server, not_in[server]) for server in listed] if kind == "servers" else listed
        print(f"{kind}: {', '.join(texts)}")
    if folder:
        print(f"of these in {folder}: {'; '.join(_of_kinds(own)) or 'none'}")


def _of_kinds(own: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for kind, names in own.items():
        if names:
            yield f"{kind}s {', '.join(names)}"


def _with_releases(server: str, not_in: Sequence[Suite]) -> str:
    """The server's name, with the releases of Debian that do not ship it."""
    absent = [f"not in {release_of_suite(suite).name}" for suite in not_in]
    return f"{server} ({', '.join(absent)})" if absent else server
