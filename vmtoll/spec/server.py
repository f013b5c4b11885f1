"""Servers: the server.yml of a folder of server-builds, with what it takes over from another server.

`of: nginx` takes over every key of nginx but `build`, which belongs to its own folder, and `tls`, so that a published
configuration stays as it is; the server's own keys are laid over them, mappings key by key. In every text `{name}`
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
from vmtoll.spec.catalog import unknown
from vmtoll.spec.documents import Keys, laid_over, mistake, read

# On the machines under test: a folder for each server's configuration.
FOLDER = "/etc/vmtoll/servers"


class Source(Document):
    """The archive that no distribution ships, and the shell command that makes the program of it."""

    project: str
    version: str
    licence: str
    make: str
    makes: str


class Mail(Document):
    """What the runner must know of a mail server to fill it, to empty it and to count what it delivered."""

    domain: str
    users: int = Field(gt=0)
    owner: str
    greets: list[int]
    configuration: str
    accounts: str
    mailboxes: str
    queue: str
    log: str


class Tls(Document):
    """What a server speaks inside of TLS 1.3. `resumption`: it can resume sessions; `kernel`: the kernel encrypts."""

    http: list[HttpVersion] = Field(min_length=1)
    resumption: bool = True
    kernel: bool = False

    def cannot(self, transport: Transport) -> str:
        """Why it cannot be reached in this way; empty where it can."""
        if transport.http not in self.http:
            return f"does not speak HTTP/{transport.http} over TLS"
        return "does not resume TLS sessions" if transport.resumption and not self.resumption else ""


class ServerDefinition(Document):
    """A server as it is installed and started. `templates`: relative to its folder, without `.j2`; `build`: what its
    own Makefile makes; `environment`: variables that are set to the worker count; `settings`: for its templates;
    `metrics`: the path of its histograms, as `vmtoll.runner.server_times` reads them, on the loopback; `uploads`: the
    page (`site/page`) for which it reads the whole body of a POST before it answers; `tls`: of a server that speaks
    TLS too.
    """

    name: str
    description: str
    binary: str
    templates: list[str]
    exec_start: str
    packages: list[str] = Field(default_factory=list)
    mask: list[str] = Field(default_factory=list)  # units of the packages, kept from starting
    user: str | None = None
    environment: list[str] = Field(default_factory=list)
    build: str | None = None
    source: Source | None = None
    workers: int | None = Field(default=None, gt=0)  # None: the lab's
    ports: list[int] | None = Field(default=None, min_length=1)  # None: the lab's only
    metrics: str | None = Field(default=None, pattern="^/")
    uploads: str | None = Field(default=None, pattern="^[^/]+/[^/]")
    mail: Mail | None = None
    tls: Tls | None = None
    not_in: list[Suite] = Field(default_factory=list)  # releases of Debian that do not ship it
    settings: Keys = Field(default_factory=dict)

    @property
    def serves(self) -> Literal["mail", "pages"]:
        return "mail" if self.mail else "pages"

    def cannot(self, transport: Transport) -> str:
        """Why it cannot be reached in this way; empty where it can."""
        if not transport.tls:
            return ""
        return self.tls.cannot(transport) if self.tls else "does not speak TLS"

    @property
    def document(self) -> Keys:
        """The keys that are set, as templates and Ansible read them."""
        return self.model_dump(exclude_unset=True)


def read_server(name: str, folder: Path = SERVER_BUILDS) -> ServerDefinition:
    """The server of this name. Raises ExperimentError naming file and key."""
    document = _filled(_document(name, folder), {"{name}": name, "{folder}": f"{FOLDER}/{name}"})
    return ServerDefinition(name=name, **document)


def read_servers(folder: Path = SERVER_BUILDS) -> list[ServerDefinition]:
    """All of them, by name. Raises ExperimentError."""
    return [read_server(name, folder) for name in _names(folder)]


def _names(folder: Path) -> list[str]:
    return sorted(file.parent.name for file in folder.glob("*/server.yml"))


def _document(name: str, folder: Path, heirs: tuple[str, ...] = ()) -> Keys:
    path = folder / name / "server.yml"
    document = read(path)
    parent = document.pop("of", None)
    if parent is not None:
        if parent not in _names(folder):
            raise ExperimentError(f"{path}: of: {unknown('server', parent, _names(folder))}")
        if parent in (name, *heirs):
            raise ExperimentError(f"{path}: of: {' → '.join([*heirs, name, parent])} is a circle")
        inherited = _document(parent, folder, (*heirs, name))
        for key in ("build", "tls"):
            inherited.pop(key, None)
        inherited["templates"] = [
            template if template.startswith("../") else f"../{parent}/{template}" for template in inherited["templates"]
        ]
        document = laid_over(inherited, document)
    try:
        ServerDefinition(name=name, **document)
    except ValidationError as error:
        raise mistake(path, ServerDefinition, error) from None
    return document


def _filled(value: Any, placeholders: dict[str, str]) -> Any:
    """The same with the placeholders in every text replaced."""
    if isinstance(value, dict):
        return {key: _filled(each, placeholders) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, placeholders) for each in value]
    if isinstance(value, str):
        for placeholder, text in placeholders.items():
            value = value.replace(placeholder, text)
    return value
