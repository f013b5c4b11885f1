"""A container runtime as an environment: a process that the agent of a container's host starts, not a machine."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from vmtoll.model.document import Document
from vmtoll.model.message import message
from vmtoll.model.trial import MachineKind

# What separates a server from its host.
Program = Literal["process", "runc", "crun", "runsc", "kata", "krun"]
_PROGRAMS: dict[str, str] = {
    "process": "a plain process of the host, without a container",
    "runc": "a runc container on the host's kernel",
    "crun": "a crun container on the host's kernel",
    "runsc": "a gVisor sandbox (runsc), whose own kernel answers the system calls",
    "kata": "a Kata container in a virtual machine",
    "krun": "a libkrun container in a virtual machine",
}


def runtime_text(recorded: Mapping[str, Any]) -> str:
    """What a recorded runtime is: `a gVisor sandbox (runsc), …, version 20260101.0, by systrap`; empty without one."""
    program = recorded.get("runtime")
    if not program:
        return ""
    stack = "the host's TCP stack" if program == "runsc" and recorded.get("stack") == "host" else ""
    values = {**recorded, "what": _PROGRAMS.get(program, str(program)), "stack": stack}
    return message("{what}[, version {version}][, by {platform}][, with {stack}]", values)


class Isolation(Document):
    """Parts of what a container costs, each of which a change of an environment may replace; unset: as it is."""

    seccomp: bool | None = Field(default=None, description="false: no filter of system calls; unset: the engine's own")
    user_namespace: bool | None = Field(
        default=None, description="true: root of the container is another user of the host"
    )
    content: Literal["mounted", "overlay"] | None = Field(
        default=None,
        description="`mounted`: the site's files are mounted separately; `overlay`: they are read through an overlay "
        "over the root file system; unset: `mounted`",
    )
    flags: list[str] | None = Field(default=None, description="further flags of the runtime, as `overlay2=none`")

    @property
    def chosen(self) -> dict[str, Any]:
        """The parts that are set."""
        return {name: value for name in Isolation.model_fields if (value := getattr(self, name)) is not None}


class Runtime(Isolation):
    """How a host runs a server in an environment that is a process: a file of `vm-images/runtimes`."""

    description: str = Field(description="what it is, one sentence")
    runtime: Program = Field(description="program that starts the container; `process`: there is no container")
    platform: Literal["systrap", "ptrace", "kvm"] | None = Field(
        default=None, description="of runsc: how it intercepts system calls"
    )
    stack: Literal["own", "host"] = Field(
        default="own", description="of runsc: TCP in the sandbox itself, or passed through to the host's kernel"
    )

    @model_validator(mode="after")
    def _of_runsc(self) -> "Runtime":
        if self.runtime != "runsc" and (self.platform or self.stack == "host"):
            raise ValueError(f"platform and stack are of runsc, and runtime is {self.runtime}; remove them")
        if self.runtime == "process" and self.chosen:
            raise ValueError("a plain process has no isolation to choose; remove it")
        return self

    @property
    def kind(self) -> MachineKind:
        """What an environment of this runtime is."""
        return MachineKind.PROCESS if self.runtime == "process" else MachineKind.CONTAINER
