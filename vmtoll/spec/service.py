"""A service of an experiment: its URLs, headers and authority, read from the files that the experiment names."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import ValidationError

from vmtoll.model.errors import ExperimentError, LogError
from vmtoll.model.experiment import Experiment
from vmtoll.model.service import Service
from vmtoll.model.workload import ClosedWorkload, RateWorkload, SearchWorkload, SweepWorkload, Workload
from vmtoll.spec.catalog import unknown
from vmtoll.spec.documents import Keys, validation_error

KINDS: Mapping[str, type[ClosedWorkload | RateWorkload | SweepWorkload | SearchWorkload]] = {
    "closed": ClosedWorkload, "rate": RateWorkload, "sweep": SweepWorkload, "search": SearchWorkload,
}  # fmt: skip
TOOL = "vegeta"  # the one tool whose results can be followed while it sends
MOST_URLS = 1000  # different ones: each is asked for twice on every arm before the run
# Keys of workloads that the service sets, and those for machines and sites of vmtoll's own.
_REFUSED = (
    "site", "tool", "crosscheck", "tls", "http", "tls_resumption", "page", "method", "body_bytes", "client", "cores",
    "capacity", "cold", "guests", "neighbour", "streams", "requests", "share", "shares", "between_shares",
)  # fmt: skip
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*)")
_PATH = re.compile(r"/[!-~]*")
_AS_THEY_ARE = "".join(map(chr, range(0x20, 0x7F)))


@dataclass(frozen=True)
class ServiceRequests:
    """What is asked of a service."""

    service: Service
    addresses: Mapping[str, str]  # environment → scheme, host and port
    paths: Sequence[str]  # in the mix that is asked for, so that a path may stand there several times
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: str = field(default="", repr=False)  # PEM text, empty for the client's own list
    left_out: int = 0  # requests of an access log that cannot be asked for, of `of`
    of: int = 0

    @property
    def dynamic(self) -> set[str]:
        """The paths whose body may differ."""
        return {encoded(name) for name in self.service.dynamic}

    @property
    def distinct(self) -> list[str]:
        """The different paths, in the order of their first places."""
        return list(dict.fromkeys(self.paths))


def complete(path: Path, data: Keys) -> Keys:
    """An experiment's keys with the servers and workloads of its service; unchanged without one."""
    service = data.get("service")
    if not isinstance(service, dict):
        return data
    for key in ("servers", "workloads"):
        if key in data:
            raise ExperimentError(f"{key}: `service` has its own; remove it", path)
    loads = service.get("loads")
    names = list(loads) if isinstance(loads, dict) else ["load"]
    return {**data, "servers": [service.get("name", "service")], "workloads": names}


def load_requests(path: Path, experiment: Experiment, service: Service) -> ServiceRequests:
    """What the experiment in this file asks of its service; names of files are relative to its folder.

    Raises ExperimentError.
    """
    addresses = {}
    for environment in experiment.environments:
        address = service.address_of(environment, experiment.machine_of(environment))
        if address is None:
            raise ExperimentError(f"service.address: has none for the environment {environment}; add it", path)
        addresses[environment] = address.rstrip("/")
    paths, left_out, of = _paths(path, service, set(addresses.values()))
    for i, name in enumerate(service.dynamic):
        if encoded(name) not in paths:
            raise ExperimentError(f"service.dynamic[{i}]: {unknown('URL', name, list(dict.fromkeys(paths)))}", path)
    headers = dict(_headers(path, path.parent / service.headers)) if service.headers else {}
    ca = _text(path, "ca", path.parent / service.ca) if service.ca else ""
    return ServiceRequests(service, addresses, paths, headers, ca, left_out, of)


def encoded(path: str) -> str:
    """A path as a request has it: characters other than ASCII as UTF-8 with %."""
    return quote(path, safe=_AS_THEY_ARE)


def workloads_of(path: Path, service: Service) -> dict[str, Workload]:
    """The loads of a service as workloads, none above `at_most_rps`. Raises ExperimentError."""
    return {name: _workload(path, f"service.loads.{name}", name, keys, service) for name, keys in service.loads.items()}


def _workload(path: Path, where: str, name: str, keys: Mapping[str, Any], service: Service) -> Workload:
    kind = keys.get("kind", "closed")
    if kind not in KINDS:
        raise ExperimentError(f"{where}: kind: {unknown('kind', kind, list(KINDS))}", path)
    if refused := next((key for key in _REFUSED if key in keys), None):
        raise ExperimentError(f"{where}: {refused}: a service sets it, or has none; remove it", path)
    if keys.get("arrivals", "constant") != "constant":
        raise ExperimentError(f"{where}: arrivals: at random they exceed at_most_rps for a moment; remove it", path)
    filled: Keys = {
        "kind": kind, "description": "requests for the URLs of a service", "site": service.name, "tool": TOOL,
        "keep_alive": True, "tls": service.scheme == "https", "http": service.http, **keys,
    }  # fmt: skip
    try:
        workload = KINDS[kind](name=name, **filled)
    except ValidationError as error:
        raise ExperimentError(f"{where}: {validation_error(path, KINDS[kind], error).sentence}", path) from None
    for key, rate_rps in _rates(workload):
        if rate_rps > service.at_most_rps:
            raise ExperimentError(
                f"{where}: {key}: {rate_rps:g} is above service.at_most_rps, {service.at_most_rps:g}; lower it", path
            )
    return workload


def _rates(workload: Workload) -> Iterator[tuple[str, float]]:
    """The highest rate of an open loop, with its key; a closed loop is capped while it runs."""
    if isinstance(workload, RateWorkload):
        yield "rate_rps", workload.rate_rps or 0.0
    elif isinstance(workload, SweepWorkload):
        yield "rates_rps", max(workload.rates_rps or [0.0])
    elif isinstance(workload, SearchWorkload):
        yield "between_rps", workload.between[1]


def _paths(path: Path, service: Service, addresses: set[str]) -> tuple[list[str], int, int]:
    """The paths of the list or of the logs; how many requests of the logs were left out, and of how many. Raises
    ExperimentError.
    """
    left_out = of = 0
    if isinstance(service.urls, list):
        key, listed = "urls", [(f"number {n}", text) for n, text in enumerate(service.urls, 1)]
    elif service.urls:
        key = f"urls: {service.urls}"
        lines = [
            (n, line.strip()) for n, line in enumerate(_text(path, "urls", path.parent / service.urls).split("\n"), 1)
        ]
        listed = [(f"line {n}", line) for n, line in lines if line and not line.startswith("#")]
    else:
        key, (requested, left_out, of) = "access_log", _paths_of_logs(path, service.access_log)
        listed = [("", each) for each in requested]
    if not listed:
        raise ExperimentError(f"service.{key}: is empty; list one path per line, e.g. /cart?id=1", path)
    try:
        paths = [_path_of(where, text, addresses) for where, text in listed]
    except ValueError as error:
        raise ExperimentError(f"service.{key}: {error}", path) from None
    if (count := len(set(paths))) > MOST_URLS:
        raise ExperimentError(f"service.{key}: {count} different URLs are above {MOST_URLS}; choose among them", path)
    return paths, left_out, of


def _path_of(where: str, text: str, addresses: set[str]) -> str:
    """The path of a line, which may begin with an address of the service. Raises ValueError for another line."""
    address = next((each for each in addresses if text == each or text.startswith((f"{each}/", f"{each}?"))), "")
    rest = text.removeprefix(address)
    each = encoded(rest if rest.startswith("/") or not address else f"/{rest}")
    if _PATH.fullmatch(each):
        return each
    if urlsplit(text).scheme:
        complaint = f"is not at {' or '.join(sorted(addresses))}; give its path alone, the address has the rest"
    else:
        complaint = "write a blank as %20" if text.startswith("/") else "a path begins with /"
    shown = re.sub(r"//[^/@]*@", "//…@", text)  # no password
    raise ValueError(f"{where}, {shown!r}: {complaint}")


def _paths_of_logs(path: Path, logs: str | list[str] | None) -> tuple[list[str], int, int]:
    from vmtoll.access_log.requested import requested_paths  # noqa: PLC0415 (loads duckdb)

    try:
        return requested_paths([path.parent / log for log in ([logs] if isinstance(logs, str) else logs or [])])
    except LogError as error:
        raise ExperimentError(f"service.access_log: {error}", path) from error


def _headers(path: Path, file: Path) -> Iterator[tuple[str, str]]:
    """Name and value of each header in a file; an error never quotes the file."""
    for number, line in enumerate(_text(path, "headers", file).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _HEADER.fullmatch(line.rstrip())
        if not match or not match[2].isprintable() or not match[2].isascii():
            raise ExperimentError(f"service.headers: {file.name}: line {number} is not `Name: value` in ASCII", path)
        yield match[1], match[2]


def _text(path: Path, key: str, file: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 with its mark; without a byte order mark."""
    try:
        data = file.read_bytes()
        return data.decode("utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except OSError as error:
        raise ExperimentError(f"service.{key}: {file}: {error.strerror}", path) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ExperimentError(
            f"service.{key}: {file}: line {line} is not UTF-8; save the file as UTF-8", path
        ) from None
