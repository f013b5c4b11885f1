"""`vmtoll lab`: image, up, down, status."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.builds import image, machine_disk, tools
from vmtoll.builds.suite import lab_release
from vmtoll.commands import values
from vmtoll.commands.answer import print_either, print_json
from vmtoll.commands.help import CommandGroup, describe, subcommand
from vmtoll.commands.options import JsonOption, SuiteOption
from vmtoll.lab import embedded
from vmtoll.lab import topology as topologies
from vmtoll.shell import say

app = typer.Typer(
    cls=CommandGroup,
    help="The embedded lab on this machine: clients, metal and guests.",
    epilog=describe("lab", "vmtoll lab up", "vmtoll lab status", "vmtoll lab down"),
    no_args_is_help=True,
)


@subcommand(app, "lab up", "vmtoll lab up --link 1gbit", "vmtoll lab up --guests kvm-2009,kvm-default")
def up(
    link: Annotated[str, typer.Option(help="Rate of each client's link: unshaped, 100mbit, 1gbit, …")] = "unshaped",
    topology: Annotated[
        str,
        typer.Option(
            help="Machines of the lab: a file's name in playbooks/topologies.", autocompletion=values.topologies
        ),
    ] = "single",
    guests: Annotated[
        str,
        typer.Option(
            help="Guest profiles, in place of the topology's: kvm-2009,kvm-default,kvm-default",
            autocompletion=values.profiles,
        ),
    ] = "",
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the lab up (builds the image first if needed). Running it again changes nothing.

    A lab with another topology is replaced.
    """
    shape = topologies.shape(topology, [name.strip() for name in guests.split(",") if name.strip()])
    embedded.require_root()
    embedded.up(link, say, shape, lab_release(suite))
    if as_json:
        print_json(embedded.status())


@subcommand(app, "lab image", "vmtoll lab image --suite bookworm")
def build_image(
    machines: Annotated[bool, typer.Option("--machines", help="Also build the disk for virtual machines.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Copy what a KVM host needs into this folder, with checksums, to serve it by HTTP: the host fetches "
            "it as `vmtoll_image_url` says.",
            file_okay=False,
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(help="Package of another kernel that guest profiles name (repeatable)."),
    ] = None,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build the machines' image into the cache, unless it is there; `up` does so, too."""
    embedded.require_root()
    release = lab_release(suite)
    folder = image.ensure(say, release, kernel or ())
    if machines:
        tools.build()
        machine_disk.ensure(folder, say)
    digest = image.export(folder, output) if output else None
    if as_json:
        print_json({"image": folder, "suite": release.suite, "output": output, "sha256": digest})
    elif output:
        print(f"{output}: serve this folder by HTTP, and give KVM hosts in the inventory:\n")
        print(f"vmtoll_image_url: http://…\nvmtoll_image_sha256: {digest}")


@subcommand(app, "lab down", "vmtoll lab down")
def down() -> None:
    """Remove the lab with all its namespaces, mounts, domains, processes and routes."""
    embedded.require_root()
    embedded.down(say)


@subcommand(app, "lab status", "vmtoll lab status", "vmtoll lab status --json", exits={1: "the lab is not up"})
def status(as_json: JsonOption = False) -> None:
    """Print whether the lab is up, its image, topology and link, and which machines do not answer."""
    state = embedded.status()
    print_either(as_json, lambda: state, lambda: _lines(state))
    raise SystemExit(0 if state["up"] else 1)


def _lines(state: Mapping[str, object]) -> Iterator[str]:
    for key, value in state.items():
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        if isinstance(value, list | tuple):
            text = ", ".join(map(str, value)) or "none"
        yield f"{key.replace('_', ' ')}: {text}"
