"""Read servers: the server.yml of each folder of server-builds, with the keys that it inherits from another server.

`of: nginx` inherits every key of nginx but `build`, which belongs to nginx's folder, and `tls`, so that a published
configuration stays as it is; the server's own keys override them, mappings key by key. In every text `{name}`
stands for the server's name, `{folder}` for the folder of its configuration on the machine under test.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from vmtoll.model.document import Document
from vmtoll.model.errors import ExperimentError
from vmtoll.model.release import Suite
from vmtoll.model.transport import HttpVersion, Transport
from vmtoll.paths import SERVER_BUILDS
from vmtoll.search_path import SearchPath, servers
from vmtoll.spec.catalog import unknown
from vmtoll.spec.documents import Keys, merge, read, validation_error

# On the machines under test: parent of the folders with the servers' configurations.
FOLDER = "/etc/vmtoll/servers"


class Source(Document):
    """The archive that no distribution ships, and the shell command that makes the program of it."""

    project: str = Field(description="name of the project")
    version: str = Field(description="version of the archive")
    licence: str = Field(description="its licence")
    make: str = Field(description="shell command that builds it in the unpacked archive")
    makes: str = Field(description="the program that it leaves, relative to the archive")


class Mail(Document):
    """Facts of a mail server that the runner needs to fill it, to empty it and to count what it delivered."""

    domain: str = Field(description="mail domain")
    users: int = Field(gt=0, description="mailboxes")
    owner: str = Field(description="user that owns them")
    greets: list[int] = Field(description="ports on which the server speaks first")
    configuration: str = Field(description="the effective configuration's file")
    accounts: str = Field(description="file of the accounts")
    mailboxes: str = Field(description="folder of the mailboxes")
    queue: str = Field(description="folder of the queue")
    log: str = Field(description="log of deliveries")


class Tls(Document):
    """Protocols that a server speaks inside of TLS 1.3."""

    http: list[HttpVersion] = Field(min_length=1, description="HTTP versions over TLS 1.3")
    resumption: bool = Field(default=True, description="it can resume sessions")
    streams: int | None = Field(
        default=None, gt=0, description="most streams of HTTP/2 that it takes on a connection at once; unset: enough"
    )
    kernel: bool = Field(default=False, description="the kernel encrypts (kTLS); measured over TLS alone")

    def why_unsupported(self, transport: Transport, streams: int = 1) -> str:
        """Reason why it cannot use this transport, with this number of streams on a connection; empty if it can."""
        if transport.http not in self.http:
            return f"does not speak HTTP/{transport.http} over TLS"
        if self.streams and streams > self.streams:
            return f"takes {self.streams} streams on a connection, not {streams}"
        return "does not resume TLS sessions" if transport.resumption and not self.resumption else ""


class ServerDefinition(Document):
    """A server as it is installed and started."""

    name: str
    description: str = Field(description="what it is, one sentence")
    binary: str = Field(description="path of the program")
    templates: list[str] = Field(description="configuration files, relative to its folder, without `.j2`")
    exec_start: str = Field(description="command of its unit, in the foreground")
    packages: list[str] = Field(default_factory=list, description="Debian packages")
    mask: list[str] = Field(default_factory=list, description="units of the packages that must not start")
    user: str | None = Field(default=None, description="user that it runs as")
    environment: list[str] = Field(
        default_factory=list, description="environment variables that are set to the worker count"
    )
    build: str | None = Field(default=None, description="program that its folder's Makefile makes")
    source: Source | None = Field(default=None, description="archive that no distribution ships")
    workers: int | None = Field(default=None, gt=0, description="worker processes; unset: the lab's")
    ports: list[int] | None = Field(
        default=None, min_length=1, description="ports it listens on; unset: the lab's alone"
    )
    metrics: str | None = Field(
        default=None, pattern="^/", description="path of its histograms, on the loopback, one port below its own"
    )
    uploads: str | None = Field(
        default=None,
        pattern="^[^/]+/[^/]",
        description="page (`site/page`) for which it reads the whole body of a POST before it answers",
    )
    mail: Mail | None = Field(default=None, description="of a mail server")
    tls: Tls | None = Field(default=None, description="of a server that speaks TLS too")
    not_in: list[Suite] = Field(default_factory=list, description="releases of Debian that do not ship it")
    settings: Keys = Field(default_factory=dict, description="values for its templates")

    @property
    def serves(self) -> Literal["mail", "pages"]:
        return "mail" if self.mail else "pages"

    @property
    def kernel_tls(self) -> bool:
        """Return whether the kernel should encrypt for it. Without TLS it would be the same as the server that it
        inherits from.
        """
        return self.tls is not None and self.tls.kernel

    def why_unsupported(self, transport: Transport, streams: int = 1) -> str:
        """Reason why it cannot use this transport, with this number of streams on a connection; empty if it can."""
        if not transport.tls:
            return "is measured over TLS alone" if self.kernel_tls else ""
        return self.tls.why_unsupported(transport, streams) if self.tls else "does not speak TLS"

    @property
    def document(self) -> Keys:
        """The keys that are set, as templates and Ansible read them."""
        return self.model_dump(exclude_unset=True)


def read_server(name: str, folder: Path = SERVER_BUILDS) -> ServerDefinition:
    """The server of this name, the user's or one of a shipped folder. Raises ExperimentError naming file and key."""
    document = _fill_placeholders(_document(name, servers(folder)), {"{name}": name, "{folder}": f"{FOLDER}/{name}"})
    return ServerDefinition(name=name, **document)


def read_servers(folder: Path = SERVER_BUILDS) -> list[ServerDefinition]:
    """All servers, by name. Raises ExperimentError."""
    return [read_server(name, folder) for name in servers(folder).names()]


def template_file(name: str, template: str, folder: Path = SERVER_BUILDS) -> Path:
    """The template of a server's configuration file; `../nginx/x` is one of the server nginx."""
    *others, file = Path(f"{template}.j2").parts
    return servers(folder).part(others[-1] if others[:1] == [".."] else name, file)


def _document(name: str, folders: SearchPath, heirs: tuple[str, ...] = ()) -> Keys:
    path = folders.find(name)
    document = read(path)
    parent = document.pop("of", None)
    if parent is not None:
        if parent not in folders.names():
            raise ExperimentError(f"of: {unknown('server', parent, folders.names())}", path)
        if parent in (name, *heirs):
            raise ExperimentError(f"of: {' → '.join([*heirs, name, parent])} is a cycle", path)
        inherited = _document(parent, folders, (*heirs, name))
        for key in ("build", "tls"):
            inherited.pop(key, None)
        inherited["templates"] = [
            template if template.startswith("../") else f"../{parent}/{template}" for template in inherited["templates"]
        ]
        document = merge(inherited, document)
    try:
        ServerDefinition(name=name, **document)
    except ValidationError as error:
        raise validation_error(path, ServerDefinition, error) from None
    return document


def _fill_placeholders(value: Any, placeholders: dict[str, str]) -> Any:
    """Return the value with the placeholders in all its texts replaced."""
    if isinstance(value, dict):
        return {key: _fill_placeholders(entry, placeholders) for key, entry in value.items()}
    if isinstance(value, list):
        return [_fill_placeholders(entry, placeholders) for entry in value]
    if isinstance(value, str):
        for placeholder, text in placeholders.items():
            value = value.replace(placeholder, text)
    return value
