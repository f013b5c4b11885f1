"""The command `diagnose`: which tuning steps an existing guest lacks."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import describe
from vmtoll.commands.options import InventoryOption, JsonOption, ResultsOption
from vmtoll.guests import diagnosis as domains
from vmtoll.guests import needs
from vmtoll.guests.steps import gained
from vmtoll.machines.connection import AgentLine
from vmtoll.model.diagnosis import Diagnosis, State
from vmtoll.model.errors import AgentError, UserError
from vmtoll.model.inventory import Host
from vmtoll.paths import INVENTORY, RESULTS
from vmtoll.spec.catalog import unknown
from vmtoll.spec.inventory import hosts_by_role
from vmtoll.spec.inventory_faults import checked

_LIMIT_S = 60.0


describe("diagnose", "vmtoll diagnose web1", "vmtoll diagnose web1 --inventory hosts.yml --on kvm1 --json")


def diagnose(
    guest: Annotated[str, typer.Argument(help="libvirt's name of the guest, or its name in the inventory.")],
    inventory: InventoryOption = None,
    kvm_host: Annotated[
        str | None, typer.Option("--on", help="KVM host of the inventory that runs the guest (default: this machine).")
    ] = None,
    connect: Annotated[
        str | None, typer.Option("--connect", "-c", help="libvirt URI (default: qemu:///system, or the inventory's).")
    ] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """List the tuning steps that a guest lacks, their measured gain, and the XML to apply them.

    It reads the guest's definition and its host, and changes nothing. The figures come from the newest tuning run that
    was measured here, else from the one committed with vmtoll; each is named.
    """
    from vmtoll.analysis.step_worth import tuning_runs, worth_of  # noqa: PLC0415 (loads the analysis)
    from vmtoll.report.diagnosis import lines  # noqa: PLC0415

    host, domain = _host(guest, inventory, kvm_host)
    uri = connect or host.libvirt_uri
    answer = read(host, uri, domain)
    steps = domains.diagnose(answer["xml"], answer["facts"])
    lacking = list(dict.fromkeys(step.tuning for step in steps if step.state is State.LACKING))
    worth, runs = worth_of(lacking, tuning_runs(results), gained)
    host_text = uri if inventory is None else f"{host.name} ({uri})"
    diagnosis = Diagnosis(domain, host_text, answer["running"], steps, worth, runs)
    if as_json:
        print_json(TypeAdapter(Diagnosis).dump_python(diagnosis, mode="json"))
    else:
        print("\n".join(lines(diagnosis, shlex.join(["virsh", "-c", uri, "edit", domain]))))


def _host(guest: str, inventory: Path | None, kvm_host: str | None) -> tuple[Host, str]:
    """The KVM host, and libvirt's name of the guest there."""
    if inventory is None:
        if kvm_host:
            raise UserError(f"--on {kvm_host} needs --inventory: give the inventory that contains this host")
        return Host("localhost", "kvm_host", {"ansible_connection": "local"}), guest
    by_role = hosts_by_role(checked(inventory), str(inventory))
    hosts = {host.name: host for host in by_role["kvm_host"]}
    known = next((host for host in by_role["kvm_guest"] if host.name == guest), None)
    name = kvm_host or (known.vars.kvm_host if known else None) or (next(iter(hosts)) if len(hosts) == 1 else None)
    if name is None:
        names = ", ".join(sorted(hosts)) or "none"
        raise UserError(f"{inventory}: {guest} is not in it; choose its KVM host with --on (there are: {names})")
    if name not in hosts:
        raise UserError(f"{inventory}: {unknown('KVM host', name, sorted(hosts))}")
    return hosts[name], (known.vars.domain or guest) if known else guest


def read(host: Host, uri: str, domain: str) -> dict[str, Any]:
    """Read on the host by guests/guest_facts.py. Raises UserError when libvirt or the domain is not there."""
    files = {path.name: path.read_text("utf-8") for path in (domains.READER, needs.PROBE)}
    line = AgentLine(host)
    line.open(_LIMIT_S)
    try:
        argv = [host.argv()[-1], domains.READER.name, uri, domain]
        done = line.call("exec", _LIMIT_S + 15, argv=argv, limit_s=_LIMIT_S, files=files)
    finally:
        line.close()
    try:
        answer: dict[str, Any] = json.loads(done["stdout"])
    except ValueError:
        last = "no answer in time" if done["timed_out"] else " ".join(done["stderr"].split()[-20:])
        raise AgentError(f"{host.name}: the guest's definition could not be read: {last}") from None
    if answer.get("error"):
        cause = answer["error"]
        raise UserError(
            f"{host.name}: libvirt at {uri}: {cause[:1].lower()}{cause[1:]}; start libvirtd, or give another --connect"
        )
    if "xml" not in answer and not answer["domains"]:
        lab = f" (the embedded lab's is {INVENTORY})" if INVENTORY.exists() else ""
        raise UserError(f"{host.name}: libvirt at {uri} has no guest; give another --connect, or an --inventory{lab}")
    if "xml" not in answer:
        raise UserError(f"{host.name}: libvirt at {uri}: {unknown('guest', domain, answer['domains'])}")
    return answer
