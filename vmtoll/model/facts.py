"""The facts of a machine, in one table: how each fact limits a comparison."""

from dataclasses import dataclass
from typing import Any

Facts = dict[str, Any]  # of one machine, by name, as hosts.json has them


@dataclass(frozen=True)
class Fact:
    """`label`: for readers. `compared`: two machines of a comparison may differ in this fact only where the experiment
    declares it. `boot`: metal and guest differ in it even with the same root filesystem, so it is declared by default.
    `lasting`: two runs count as measured on alike machines only if this fact is the same.
    """

    name: str
    label: str
    compared: bool = True
    boot: bool = True
    lasting: bool = False


FACTS = (
    Fact("release", "operating system", boot=False, lasting=True),
    Fact("kernel", "kernel", lasting=True),
    Fact("cmdline", "kernel command line"),
    Fact("cpu_model", "CPU model", lasting=True),
    Fact("cpus_allowed", "CPUs", lasting=True),
    Fact("microcode", "microcode"),
    Fact("mitigations", "mitigations"),
    Fact("governor", "CPU frequency governor"),
    Fact("smt", "SMT"),
    Fact("numa_nodes", "NUMA nodes"),
    Fact("clock_source", "clock source"),
    Fact("memory_kib", "memory", lasting=True),
    Fact("virtualization", "virtualization", lasting=True),
    Fact("container", "container"),
    Fact("nic", "network card"),
    Fact("sysctls", "kernel parameters", boot=False),
    Fact("packages", "packages", boot=False),
    Fact("servers", "servers", boot=False),
    Fact("content_digest", "site content", boot=False),
    Fact("workers", "workers", boot=False),
)
COMPARED = [fact.name for fact in FACTS if fact.compared]
ALWAYS_DIFFER = [fact.name for fact in FACTS if fact.boot]
