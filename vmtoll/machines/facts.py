"""Reach the machines at the start of a run, gather their facts, compare them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vmtoll import hypervisors, loadgen
from vmtoll.agent.facts import release
from vmtoll.agent.protocol import Done
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.session import Session
from vmtoll.model.disclosure import OPERATOR, DisclosedText, Disclosure, disclosed_texts
from vmtoll.model.errors import AgentError, HostLostError, InventoryError
from vmtoll.model.facts import Facts, HostFacts
from vmtoll.model.hardware import Hardware, hardware_below_kvm, hardware_of
from vmtoll.model.inventory import Host, Inventory
from vmtoll.model.trial import Accelerator

_FACTS_LIMIT_S = 180.0


def open_all(lines: Iterable[AgentLine]) -> None:
    """Start all agents at once. Raises HostLostError that names each machine that cannot be reached."""
    if complaints := unreachable(lines):
        raise HostLostError(as_lines(complaints))


def as_lines(complaints: Sequence[str]) -> str:
    """The complaints as one message; several get one line each, below a line with their number."""
    if len(complaints) == 1:
        return complaints[0]
    return f"{len(complaints)} machines do not answer:" + "".join(f"\n  {complaint}" for complaint in complaints)


def unreachable(lines: Iterable[AgentLine]) -> list[str]:
    """Start all agents at once; return a sentence for each machine that cannot be reached."""
    lines_to_open = list(lines)
    with ThreadPoolExecutor(16) as pool:
        try:
            return [*filter(None, pool.map(_open, lines_to_open))]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for line in lines_to_open:
                line.give_up("interrupted")
            raise


def _open(line: AgentLine) -> str:
    try:
        line.open()
    except HostLostError as error:
        return str(error)
    return ""


def refuse_wrong_machines(session: Session) -> None:
    """Raise InventoryError if two names are one machine, a guest and its KVM host are one machine, or a metal machine
    is a guest of a KVM host of this inventory.

    Names with their own root folder (vmtoll_root) may share a machine.
    """
    inventory = session.inventory
    hosts = [host for host in (*inventory.clients, *inventory.under_test) if host.root == "/"]
    with ThreadPoolExecutor(16) as pool:
        boot_infos = list(pool.map(lambda host: session.line(host).call("boot"), hosts))
    names: dict[str, str] = {}
    for host, boot_info in zip(hosts, boot_infos, strict=True):
        if (other := names.setdefault(boot_info["boot"], host.name)) != host.name:
            raise InventoryError(f"{host.name} and {other} are one machine; correct ansible_host of one of them")
    metal = {
        boot_info["uuid"].lower(): host.name
        for host, boot_info in zip(hosts, boot_infos, strict=True)
        if host.role == "metal"
    }
    kvm_hosts = {kvm_host.name: kvm_host for sut in inventory.under_test if (kvm_host := inventory.kvm_host(sut))}
    boots = {name: session.line(kvm_host).call("boot")["boot"] for name, kvm_host in kvm_hosts.items()}
    for host, boot_info in zip(hosts, boot_infos, strict=True):
        if (kvm_host := inventory.kvm_host(host)) and boots[kvm_host.name] == boot_info["boot"]:
            raise InventoryError(
                f"{host.name} is a guest of {kvm_host.name}, and both are one machine; correct ansible_host of one of "
                "them"
            )
    for kvm_host in kvm_hosts.values():  # the host of a container may have no libvirt
        _refuse_metal_on(session.line(kvm_host), metal)
    if inventory.other_kvm_hosts and any(_is_virtual(session, host) for host in hosts if host.role == "metal"):
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda other: _refuse_metal_on_other(other, metal), inventory.other_kvm_hosts))


def _is_virtual(session: Session, host: Host) -> bool:
    argv = ["grep", "-qw", "hypervisor", "/proc/cpuinfo"]
    done: Done = session.line(host).call("exec", _FACTS_LIMIT_S, argv=argv, limit_s=60)
    return done["exit_status"] == 0


def _refuse_metal_on_other(kvm_host: Host, metal: Mapping[str, str]) -> None:
    """Check a KVM host that has no part in the run; if it does not answer, the run starts anyway."""
    line = AgentLine(kvm_host)
    try:
        line.open()
        _refuse_metal_on(line, metal)
    except (AgentError, HostLostError):
        return
    finally:
        line.close()


def _refuse_metal_on(line: AgentLine, metal: Mapping[str, str]) -> None:
    """Raise InventoryError if a machine of `metal` (UUID → name) is a guest of this KVM host."""
    listing = hypervisors.Virsh(line).output("list", "--all", "--uuid")
    for uuid in {*listing["stdout"].lower().split(), *hypervisors.uuids(line)}:
        if uuid in metal:
            raise InventoryError(
                f"{metal[uuid]} is in the group `metal_hosts`, and is a guest of {line.host.name}; "
                "move it to the group `kvm_guests`"
            )


def gather(session: Session) -> dict[str, HostFacts]:
    """Machine → its facts, as in hosts.json. Raises InventoryError when a machine lacks a server of the experiment, or
    a container does not run on the host that the inventory names.
    """
    _find_containers(session)
    with ThreadPoolExecutor(16) as pool:
        facts_by_host = dict(pool.map(lambda host: (host.name, _facts(session, host)), session.inventory.hosts()))
    for host in session.inventory.under_test if session.resolved.requests is None else ():
        provisioned = sorted(facts_by_host[host.name].servers)
        for server in session.resolved.all_servers:
            if server not in provisioned:
                raise InventoryError(
                    f"{host.name}: server {server} is not provisioned; run vmtoll provision "
                    f"(there are: {', '.join(provisioned) or 'none'})"
                )
    for host in session.inventory.hosts():
        facts_by_host[host.name].hardware = hardware_below(session.inventory, host, facts_by_host).value
    return facts_by_host


def _find_containers(session: Session) -> None:
    """Raise InventoryError for a container under test that its host does not run."""
    for container in session.inventory.under_test:
        host = session.inventory.host(container)
        if host and container.container_name:
            try:
                session.line(host).call("containers", names=[container.container_name])
            except AgentError as error:
                raise InventoryError(f"{container.name}: {error}") from error


def keep_handshakes(recorded: Mapping[str, HostFacts], current: Mapping[str, HostFacts]) -> None:
    """Copy the results of a resumed run's earlier TLS handshakes into its current facts."""
    for machine, facts in recorded.items():
        servers = current[machine].servers if machine in current else {}
        for server, recorded_server in facts.servers.items():
            if recorded_server.tls and server in servers:
                servers[server].tls = recorded_server.tls


def _facts(session: Session, host: Host) -> HostFacts:
    try:
        facts = facts_now(session, host)
    except AgentError as error:
        raise InventoryError(f"{error}; is the machine provisioned?") from error
    if host.role == "kvm_host":
        _add_others(session, host, facts)
    return facts


def facts_now(session: Session, host: Host) -> HostFacts:
    """The facts of a machine as it is now; of a KVM host without the guests of others. Raises AgentError,
    HostLostError.
    """
    environments = [e for e, h in session.inventory.suts.items() if h.name == host.name]
    under_test, args = session.inventory.under_test, dict[str, str | list[str]]()
    if host in under_test and session.resolved.site:
        args["site"] = session.resolved.site.name
    if host.role == "kvm_host":
        args["uri"] = host.libvirt_uri
        args["domains"] = [h.vars.domain for h in under_test if h.vars.kvm_host == host.name and h.vars.domain]
    facts: Facts = session.line(host).call("facts", _FACTS_LIMIT_S, **args)
    role = "sut" if environments else "sibling" if host in under_test else host.role
    workers = host.vars.workers if "workers" in host.vars.model_fields_set else None
    return HostFacts(role=role, environment=environments[0] if environments else None, workers=workers, **facts)


def _add_others(session: Session, host: Host, facts: HostFacts) -> None:
    """Add the definitions of a host's guests that libvirt does not run, and the version of what runs them."""
    for guest in session.inventory.under_test:
        if guest.vars.kvm_host == host.name and guest.guest_name and not guest.vars.domain:
            on_host = hypervisors.of(guest, session.line(host))
            try:
                facts.domains = {**facts.domains, guest.guest_name: on_host.definition()}
                if version := on_host.version():
                    facts.qemu_version = version
            except AgentError as error:
                raise InventoryError(f"{guest.name}: {error}; start it, or correct the inventory") from error


def disclosure(session: Session) -> Disclosure:
    """The `disclosure` of run.json: the machines' reports and the inventory's statements."""
    hosts = session.inventory.hosts()
    with ThreadPoolExecutor(16) as pool:
        reports = dict(pool.map(lambda host: (host.name, session.line(host).call("disclosure", _FACTS_LIMIT_S)), hosts))
    return merge_disclosure(hosts, reports)


def merge_disclosure(hosts: Iterable[Host], reports: Mapping[str, Mapping[str, str]]) -> Disclosure:
    """The machines' reports and their vmtoll_tuning; what vmtoll_disclosure states overrides both."""
    machines, operator, virtual = dict[str, dict[str, DisclosedText]](), None, []
    for host in hosts:
        statements = dict(host.vars.disclosure or {})
        operator = statements.pop(OPERATOR, None) or operator
        report = dict(reports.get(host.name, {}))
        if host.vars.tuning:
            tuning_text = f"vmtoll tune: {json.dumps(host.vars.tuning.model_dump(exclude_none=True), sort_keys=True)}"
            report["not_default"] = "; ".join(filter(None, [report.get("not_default"), tuning_text]))
        machines[host.name] = disclosed_texts(report, statements)
        if host.role == "kvm_guest":
            virtual.append(host.name)
    return Disclosure(operator=operator, machines=machines, virtual=virtual)


def tool_versions(session: Session) -> dict[str, str]:
    """Load tool → its version, the same on all machines that need it.

    Raises InventoryError if a machine lacks the tool or has another version.
    """
    inventory, versions = session.inventory, dict[str, str]()
    needed = {
        (tool, host.name)
        for workload in session.resolved.workloads.values()
        for tool in workload.tools
        for host in (inventory.suts.values() if workload.client == "localhost" else inventory.clients)
    }
    for name, machine in sorted(needed):
        package = loadgen.get(name).package
        packages = session.facts[machine].packages
        version = packages.get(package) if package else _printed_version(session.lines[machine], name)
        if not version:
            raise InventoryError(f"{machine}: the load tool {name} is not there; run `make provision`")
        if versions.setdefault(name, version) != version:
            raise InventoryError(
                f"{machine}: the load tool {name} is {version}, elsewhere {versions[name]}; run `make provision`"
            )
    return versions


def _printed_version(line: AgentLine, program: str) -> str | None:
    """The last word of the first line of `program --version`; None without such a program."""
    try:
        version_text = line.call("exec", argv=[program, "--version"])["stdout"]
    except AgentError:
        return None
    return str(version_text.split("\n", 1)[0].split()[-1]) if version_text else None


def accelerators(session: Session) -> dict[str, Accelerator]:
    """Environment → technique that runs its machine's code."""
    accelerator_of = dict.fromkeys(session.resolved.environments, Accelerator.UNKNOWN)  # a service's may not be seen
    for environment, host in session.inventory.suts.items():
        accelerator_of[environment] = _accelerator_of(session.inventory, host, session.facts)
    return accelerator_of


def _accelerator_of(inventory: Inventory, host: Host, facts: Mapping[str, HostFacts]) -> Accelerator:
    kvm_host = inventory.kvm_host(host)
    xml = facts[kvm_host.name].domains.get(str(host.guest_name), "") if kvm_host else None
    return accelerator(host.role, facts[host.name].virtualization or "", xml)


def hardware(session: Session) -> dict[str, Hardware]:
    """Environment → the platform below its machines (for guests: below their hosts); unknown if they differ."""
    environments = dict.fromkeys(session.resolved.environments, Hardware.UNKNOWN)
    for environment, hosts in session.inventory.machines.items():
        kinds = {Hardware(session.facts[host.name].hardware or Hardware.UNKNOWN) for host in hosts}
        environments[environment] = kinds.pop() if len(kinds) == 1 else Hardware.UNKNOWN
    return environments


def releases(session: Session) -> dict[str, str]:
    """Environment → the operating system of its machines; several names if they differ."""
    unseen = dict.fromkeys(session.resolved.environments, "unknown")
    return unseen | {
        environment: ", ".join(sorted({session.facts[host.name].release or "unknown" for host in hosts}))
        for environment, hosts in session.inventory.machines.items()
    }


def release_of(host: Host) -> str:
    """Operating system of a machine, by a separate line before the run opens its lines. Raises HostLostError,
    AgentError.
    """
    return release(_run_before_session(host, "cat", "/etc/os-release")["stdout"])


def kernel_has_tls(host: Host) -> bool:
    """Return whether a machine's kernel can encrypt, or can load the module that does.

    Uses a separate line, before the run opens its lines. Raises HostLostError, AgentError.
    """
    return not _run_before_session(host, "sh", "-c", "test -e /proc/net/tls_stat || /sbin/modprobe -nq tls")[
        "exit_status"
    ]


def _run_before_session(host: Host, *argv: str) -> Done:
    line = AgentLine(host)
    try:
        line.open()
        done: Done = line.call("exec", argv=argv)
        return done
    finally:
        line.close()


def hardware_below(inventory: Inventory, host: Host, facts: Mapping[str, HostFacts]) -> Hardware:
    """The platform below a machine; for a guest that below its host, as a guest sees only its own hypervisor."""
    if host.role != "kvm_guest":
        return hardware_of(facts[host.name])
    kvm_host = inventory.kvm_host(host)
    if kvm_host is None:
        return Hardware.UNKNOWN
    is_kvm = _accelerator_of(inventory, host, facts) is Accelerator.KVM
    return (hardware_below_kvm if is_kvm else hardware_of)(facts[kvm_host.name])


# Line 1: the host name; line 2: its addresses; then one identifier of hardware or installation per line.
_SCRIPT = """
uname -n
echo "$(hostname -I 2>/dev/null)"
cat /etc/machine-id /sys/class/net/*/address /sys/block/*/serial /sys/block/*/device/serial \
    /sys/class/dmi/id/*_serial /sys/class/dmi/id/product_uuid 2>/dev/null
true
"""
_LIMIT_S = 30.0


def gather_private(session: Session) -> dict[str, Any]:
    """private.json: `hosts` (inventory name → texts that name this machine) and `users` (names and key files); the
    addresses of a service are those of `service`.
    """
    machines = session.inventory.hosts()
    with ThreadPoolExecutor(16) as pool:
        names_by_host = dict(pool.map(lambda host: (host.name, _names(session, host)), machines))
    users = {text for host in machines for text in (host.ansible.user, host.ansible.ssh_private_key_file) if text}
    if requests := session.resolved.requests:
        names_by_host[requests.service.name] = requests.service.hosts
    return {"hosts": names_by_host, "users": sorted(users)}


def _names(session: Session, host: Host) -> list[str]:
    done: Done = session.line(host).call("exec", _LIMIT_S + 10, argv=["sh", "-c", _SCRIPT], limit_s=_LIMIT_S)
    lines = [line.strip() for line in done["stdout"].splitlines()]
    texts = {*lines[:1], *" ".join(lines[1:2]).split(), host.address, host.ansible.host or "", host.guest_name or ""}
    texts |= {line for line in lines[2:] if len(line) > 4 and any(letter in "123456789" for letter in line)}
    return sorted(texts - {""})


def accelerator(role: str, virtualization: str, domain_xml: str | None) -> Accelerator:
    """Technique that runs a machine's code: KVM only if the guest's systemd-detect-virt and its libvirt definition both
    say so. Without a definition (None), the guest's answer counts.
    """
    if role in ("metal", "container"):
        return Accelerator.NONE
    if domain_xml is None:
        return {"kvm": Accelerator.KVM, "qemu": Accelerator.TCG}.get(virtualization, Accelerator.UNKNOWN)
    type_match = re.search(r"<domain[^>]*\btype=['\"](\w+)['\"]", domain_xml)
    if type_match is not None and type_match[1] == "unknown":  # another monitor's, whose host shows no more
        return accelerator(role, virtualization, None)
    is_kvm = virtualization == "kvm" and type_match is not None and type_match[1] == "kvm"
    return Accelerator.KVM if is_kvm else Accelerator.TCG
