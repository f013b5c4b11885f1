"""A run as run.json records it."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from vmtoll.model.disclosure import Disclosure
from vmtoll.model.document import Document
from vmtoll.model.experiment import Experiment
from vmtoll.model.hardware import Hardware
from vmtoll.model.site import DrawnSite, ListedSite
from vmtoll.model.trial import Accelerator
from vmtoll.model.until import Look, Stop
from vmtoll.model.workload import SearchWorkload, Workload

SCHEMA: Literal[3] = 3


class MachineDifference(Document):
    """A fact in which the machines differ undeclared, with each environment's value."""

    fact: str
    values: dict[str, Any]


class Differences(Document):
    """`declared`: differing facts that the experiment declares; `undeclared`: the other differing facts; `changed`:
    those in which a machine with a change differs from itself by what the change does.
    """

    declared: list[str] = Field(default_factory=list)
    undeclared: list[MachineDifference] = Field(default_factory=list)
    changed: list[MachineDifference] = Field(default_factory=list)


class Skipped(Document):
    """A server or an environment of the experiment that was not measured, and why."""

    server: str | None = None
    environment: str | None = None
    workload: str | None = None  # the only workload for which the server was skipped, None for all
    why: str
    release: str | None = None  # the release of the machines under test, where it does not ship the server

    @property
    def name(self) -> str:
        """Name of what was not measured."""
        return ", ".join(filter(None, (self.server or self.environment, self.workload)))


class OneBoot(Document):
    """Why a run at full scale has one boot, although its experiment does not set `boots`."""

    machine: str | None = None  # the subject of `why`, None where that is a sentence
    why: str

    @property
    def text(self) -> str:
        """`metal is this machine`."""
        return " ".join(filter(None, (self.machine, self.why)))


class UsedFile(Document):
    """A file that says what is measured: a document, or a part of a server's, with its digest."""

    file: str  # in the folder that holds it, as servers/nginx/nginx.conf.j2
    sha256: str
    own: bool = False  # it is of the user's folder


class Manifest(Document):
    """run.json. `accelerators`, `hardware`: by environment; older runs lack `hardware`. `workloads`, `site`: the
    experiment's, as they were when the run began; a service has no site. `hidden_pct`: CPU time that background
    processes and the hypervisor may take from a machine under test without a finding, in percent of one CPU. With
    `until`: `measured_s`, the time spent on blocks; `looks`; `stopped`, why the run stopped, None while it goes on;
    `trials_planned` counts up to the next look. `disclosure`: what is known about the machines; `documents`: the files
    that say what is measured; older runs lack both. `unseen_hosts`: guest environments whose KVM host the inventory
    does not name. `one_boot`: why the default of several boots did not apply, None where it did, or had no part.
    """

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal[3] = Field(default=SCHEMA, alias="schema")
    run_id: str
    experiment: Experiment
    workloads: dict[str, Workload]
    site: ListedSite | DrawnSite | None
    order_seed: int
    versions: dict[str, str]
    commit: str | None
    started_at: str
    ended_at: str | None = None
    status: Literal["running", "complete"]
    accelerators: dict[str, Accelerator]
    hardware: dict[str, Hardware] = Field(default_factory=dict)
    unseen_hosts: list[str] = Field(default_factory=list)
    lab: str
    link: str
    link_mbit: float | None = None
    differences: Differences
    skipped: list[Skipped] = Field(default_factory=list)
    one_boot: OneBoot | None = None
    trials_planned: int
    hidden_pct: float | None = None
    disclosure: Disclosure | None = None
    documents: list[UsedFile] = Field(default_factory=list)
    measured_s: float | None = None
    looks: list[Look] = Field(default_factory=list)
    stopped: Stop | None = None

    @property
    def emulated(self) -> bool:
        """Return whether any environment ran under software emulation."""
        return Accelerator.TCG in self.accelerators.values()

    @property
    def skipped_servers(self) -> set[str]:
        """The servers that the run skipped for all workloads."""
        return {skip.server for skip in self.skipped if skip.server and skip.workload is None}

    @property
    def searches(self) -> dict[str, SearchWorkload]:
        """The workloads that searched for their rates, by name."""
        return {name: w for name, w in self.workloads.items() if isinstance(w, SearchWorkload)}
