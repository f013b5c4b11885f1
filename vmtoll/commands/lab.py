"""`vmtoll lab`: image, up, down, status."""

import json
from typing import Annotated

import typer

from vmtoll.commands.help import Command, Group, epilog
from vmtoll.commands.options import JsonOption, SuiteOption
from vmtoll.lab import embedded, image, machine_disk
from vmtoll.lab import topology as topologies
from vmtoll.lab.suite import chosen
from vmtoll.provisioning import tools
from vmtoll.shell import say

app = typer.Typer(
    cls=Group,
    help="The embedded lab on this machine: clients, metal and guests.",
    epilog=epilog("lab"),
    no_args_is_help=True,
)


@app.command("up", cls=Command, epilog=epilog("lab up"))
def up(
    link: Annotated[str, typer.Option(help="Rate of each client's link: unshaped, 100mbit, 1gbit, …")] = "unshaped",
    topology: Annotated[str, typer.Option(help="Which machines: a file's name in playbooks/topologies.")] = "single",
    guests: Annotated[
        str, typer.Option(help="Profiles of the guests instead of the topology's: kvm-2009,kvm-default,kvm-default")
    ] = "",
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the lab up (builds the image first if needed). Running it again changes nothing.

    A lab with another topology is replaced.
    """
    shape = topologies.shape(topology, [name.strip() for name in guests.split(",") if name.strip()])
    embedded.need_root()
    embedded.up(link, say, shape, chosen(suite))
    if as_json:
        print(json.dumps(embedded.status(), indent=2))


@app.command("image", cls=Command, epilog=epilog("lab image"))
def build_image(
    machines: Annotated[bool, typer.Option("--machines", help="Also build the disk for virtual machines.")] = False,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build the machines' image into the cache, if it is not there; `up` does it as well."""
    embedded.need_root()
    release = chosen(suite)
    folder = image.ensure(say, release)
    if machines:
        tools.build()
        machine_disk.ensure(folder, say)
    if as_json:
        print(json.dumps({"image": str(folder), "suite": release.suite}, indent=2))


@app.command("down", cls=Command, epilog=epilog("lab down"))
def down() -> None:
    """Remove the lab with all its namespaces, mounts, domains, processes and routes."""
    embedded.need_root()
    embedded.down(say)


@app.command("status", cls=Command, epilog=epilog("lab status"))
def status(_as_json: JsonOption = False) -> None:
    """Print the lab's state as JSON, with or without --json."""
    state = embedded.status()
    print(json.dumps(state, indent=2))
    raise SystemExit(0 if state["up"] else 1)
