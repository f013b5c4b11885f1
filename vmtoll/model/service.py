"""A service that runs already: vmtoll neither installs nor starts it, and asks it for its own URLs."""

from collections.abc import Iterable
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from vmtoll.model.document import Document
from vmtoll.model.transport import HttpVersion

# A load on a service has at most this many requests in flight, which is what a service that hangs can get.
MOST_IN_FLIGHT = 150


class ServiceCpu(Document):
    """How the machine of a service finds its processes, to account their CPU time."""

    unit: str | None = Field(default=None, min_length=1, description="systemd unit, e.g. `shop.service`")
    cgroup: str | None = Field(
        default=None, pattern="^/.", description="control group, a path below `/sys/fs/cgroup`, e.g. `/docker/1f9a…`"
    )
    container: str | None = Field(
        default=None,
        pattern="^[a-zA-Z0-9][a-zA-Z0-9_.-]*$",
        description="name or ID of a container of podman or Docker: its whole control group",
    )
    process: str | None = Field(
        default=None,
        min_length=1,
        description="name of the processes, or a part of their command lines; those that end take their time along, so "
        "`unit` or `cgroup` fits better where workers come and go",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(value is not None for value in (self.unit, self.cgroup, self.container, self.process)) != 1:
            raise ValueError("give one of unit, cgroup, container and process")
        return self


class Service(Document):
    """A service that runs already, in place of servers and a site."""

    name: str = Field(
        default="service", pattern="^[a-z0-9][a-z0-9-]*$", description="its name in results, where a server's stands"
    )
    address: str | dict[str, str] = Field(
        description="`https://shop.example:8443`, for all environments; or environment → address. A change has that of "
        "its machine, unless it has its own"
    )
    urls: list[str] | str | None = Field(
        default=None,
        description="URL paths, e.g. `/cart?id=1`; repeat a path to weight it; or a file with one path per line",
    )
    access_log: str | list[str] | None = Field(
        default=None, description="access logs instead: the paths of GET requests answered with 200, in their mix"
    )
    headers: str | None = Field(
        default=None,
        description="file with the headers of each request, one `Name: value` per line, cookies too; results keep only "
        "the file's name",
    )
    dynamic: list[str] = Field(
        default_factory=list,
        description="URLs whose body may differ, between sides and from one request to the next",
    )
    at_most_rps: float = Field(gt=0, description="requests per second that no load exceeds, of all clients together")
    http: HttpVersion = Field(default="1.1", description="HTTP version of the load; `2` needs an `https` address")
    ca: str | None = Field(
        default=None, description="file of the authority that signed its certificate, PEM; unset: the client's own list"
    )
    verify: bool = Field(default=True, description="the certificate must be valid for the address")
    cpu: ServiceCpu | None = Field(
        default=None,
        description="how the machines of the inventory find its processes; unset: its CPU time is not seen",
    )
    loads: dict[str, dict[str, Any]] = Field(
        min_length=1,
        description="name → a workload of `kind: closed`, `rate`, `sweep` or `search`, without the keys that the "
        "service sets (`site`, `tool`, `tls`, `http`)",
    )

    @model_validator(mode="after")
    def _one_list_of_urls(self) -> Self:
        if bool(self.urls) == bool(self.access_log):
            raise ValueError("give one of urls and access_log")
        schemes = {_scheme(address) for address in self._addresses}
        if len(schemes) > 1:
            raise ValueError("address: all sides need one scheme, http or https")
        if self.http == "2" and schemes != {"https"}:
            raise ValueError("http: '2' needs an https address, as in browsers")
        if (self.ca or not self.verify) and schemes != {"https"}:
            raise ValueError("ca and verify: only an https address has a certificate; remove them")
        return self

    @property
    def _addresses(self) -> Iterable[str]:
        return [self.address] if isinstance(self.address, str) else self.address.values()

    @property
    def scheme(self) -> Literal["http", "https"]:
        return _scheme(next(iter(self._addresses)))

    @property
    def hosts(self) -> list[str]:
        """Names or IP addresses of all its addresses."""
        return sorted({urlsplit(address).hostname or "" for address in self._addresses})

    def without_names(self) -> "Service":
        """The service for others: no address, URL, file or process by its name."""
        hidden: dict[str, Any] = {
            "address": f"{self.scheme}://service.invalid", "urls": "hidden", "access_log": None, "dynamic": [],
            "headers": self.headers and "hidden", "ca": self.ca and "hidden",
            "cpu": self.cpu and ServiceCpu(process="hidden"),
        }  # fmt: skip
        return self.model_copy(update=hidden)

    def address_of(self, environment: str, machine: str) -> str | None:
        """The address of an environment: its own, else that of the environment whose machine it is; None without."""
        if isinstance(self.address, str):
            return self.address
        return self.address.get(environment, self.address.get(machine))


class ServicePage(Document):
    """What a service answered to a URL at the start of a run; `number`: of the URL, from 1.

    `dynamic`: `no`, `declared` (by the experiment), or `found` (asked twice, its bodies differed); `sha256` and
    `length`: of the body, None for a dynamic page. `slowest_s`: the longest time that an answer took.
    """

    number: int
    path: str
    status: int
    length: int | None
    sha256: str | None
    dynamic: Literal["no", "declared", "found"]
    slowest_s: float


def _scheme(address: str) -> Literal["http", "https"]:
    """The scheme of an address. Raises ValueError for anything but scheme, host and port."""
    parts = urlsplit(address)
    has_more = parts.path not in ("", "/") or parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme not in ("http", "https") or not parts.hostname or has_more:
        shown = address.rpartition("@")[2]  # no password
        raise ValueError(
            f"address: {shown!r} is not http(s)://HOST or http(s)://HOST:PORT; paths belong to urls"
            + "; write user and password as an `authorization` header in a file, and name it under headers"
            * ("@" in address)
        )
    parts.port  # noqa: B018 (raises ValueError for a port out of range)
    return "https" if parts.scheme == "https" else "http"
