"""Remove from texts whatever names a machine or a person: known names, and what looks like a name or an address.

Known names are those in the inventory, the guests' domains, and what the runner wrote to `private.json`: host names,
addresses, serials, users, key files. A machine's names become its role everywhere, so that texts and tables
still say which machine they mean.
"""

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from vmtoll.analysis.run import Run
from vmtoll.model.errors import LoadError
from vmtoll.model.facts import COMPARED, Facts, HostFacts
from vmtoll.model.finding import ACCIDENTS, Finding
from vmtoll.model.run import Manifest
from vmtoll.model.trial import TrialRecord

# Words of the project's own language, and accounts that many machines have: they identify nobody.
ORDINARY = frozenset({
    "client", "metal", "kvm", "guest", "host", "vm", "root", "user", "localhost", "sut", "none", "unknown", "address",
    "path", "id", "mac", "uuid", "key", "debian", "ubuntu", "admin", "ansible", "vagrant", "ec2-user",
})  # fmt: skip
# The values of these keys are versions and digests, which may look like addresses: only known names are removed.
VERBATIM = frozenset({"packages", "version", "versions", "commit", "binary_sha256", "config_sha256", "content_digest"})

SHORTEST_WITHIN_WORDS = 6  # letters; names that are as long or longer are also removed within words

_REST = r"[^\s\"'<>,;|]*"  # of a path
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_PATTERNS = [
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I), "[uuid]"),
    (re.compile(r"\b[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}\b", re.I), "[mac]"),
    (re.compile(r"\b(?:ssh|ecdsa)-[\w-]+ AAAA[\w+/=]+(?: \S+)?|\bSHA256:[\w+/]{20,}"), "[key]"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", re.I), "[id]"),
    (re.compile(rf"{_REST}/\.ssh\b{_REST}|(?:/home|/Users|/root|/mnt|/media|/data|/export|~)/{_REST}"), "[path]"),
    (re.compile(rf"/dev/disk/by-{_REST}"), "[path]"),
    (re.compile(r"[\w.+-]+@[\w.-]*\w"), "[user]@[host]"),
    (re.compile(rf"(?<![\d.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\.?\d)"), "[address]"),
]
_TOP = "com|net|org|edu|gov|cloud|local|lan|internal|intranet|corp|test|example|invalid|localdomain"
_SUFFIXES = "py|md|js|gz|xz|sh|so|rs|go|pl|cc"  # of files, not of hosts
_HOST = re.compile(rf"\b(?:[a-z0-9-]{{2,}}\.)+(?:{_TOP}|(?!(?:{_SUFFIXES})\b)[a-z]{{2}})\b", re.I)
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])", re.I)


@dataclass(frozen=True)
class Scrubber:
    """`known`: name → its replacement. `vocabulary`: words of the run that stay, even if they are also names."""

    known: Mapping[str, str]
    vocabulary: frozenset[str] = field(default=frozenset())

    def text(self, value: str) -> str:
        """The text without names, addresses, hardware addresses, identifiers, keys and paths of private folders."""
        if value in self.vocabulary:
            return value
        for pattern, word in _PATTERNS:
            value = pattern.sub(word, value)
        return _HOST.sub("[host]", self.names(_IPV6.sub(_address, value)))

    def tree(self, value: Any) -> Any:
        """A JSON value with every text in it scrubbed, keys too; versions and digests stay as they are."""
        if isinstance(value, dict):
            return {
                self.text(key): _change_texts(item, self.names) if key in VERBATIM else self.tree(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def names(self, value: str) -> str:
        """The text without known names."""
        replacements = self._replacements
        return self._names.sub(lambda match: replacements[match[0].lower()], value) if replacements else value

    @cached_property
    def _replacements(self) -> dict[str, str]:
        words_to_keep = ORDINARY | {word.lower() for word in self.vocabulary}
        return {
            name.lower(): word
            for name, word in self.known.items()
            if len(name) > 1 and name.lower() not in words_to_keep
        }

    @cached_property
    def _names(self) -> re.Pattern[str]:
        """Matches the longest names first. A short name must be a whole word, a long one may be part of a word."""
        words = [re.escape(name) for name in sorted(self._replacements, key=len, reverse=True)]
        patterns = [
            word if len(word) >= SHORTEST_WITHIN_WORDS else rf"(?<![a-z0-9]){word}(?![a-z0-9])" for word in words
        ]
        return re.compile("|".join(patterns), re.I)


def _change_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _change_texts(item, change) for key, item in value.items()}
    return change(value) if isinstance(value, str) else value


def _address(match: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return "[address]"


PRIVATE = "private.json"
_FULL_HOST_NAME = re.compile(r"([a-z][a-z0-9-]*)(?:\.[a-z0-9-]+)+", re.I)


def roles(hosts: dict[str, HostFacts]) -> dict[str, str]:
    """Inventory name → `client`, the environment's name (`metal`, `kvm-default`), `kvm-host-1`, …"""
    names: dict[str, str] = {}
    machines_by_role: Counter[str] = Counter()
    for name, facts in hosts.items():
        role = facts.environment or facts.role.replace("_", "-")
        machines_by_role[role] += 1
        needs_number = role == "kvm-host" or machines_by_role[role] > 1
        names[name] = f"{role}-{machines_by_role[role]}" if needs_number else role
    return names


def scrubber_of(run: Run) -> Scrubber:
    """Scrubber with the known names of the run's machines and users, and the words of the run that must stay."""
    names = roles(run.hosts)
    private = _private(run.path / PRIVATE)
    replacements = dict(names)
    for host, texts in private.get("hosts", {}).items():
        replacements |= dict.fromkeys(texts, names.get(host, "[host]"))
    replacements |= dict.fromkeys(private.get("users", []), "[user]")
    for domain in _domains(run):
        replacements.setdefault(domain, "[guest]")
    for name, word in list(replacements.items()):
        if short := _FULL_HOST_NAME.fullmatch(name):
            replacements.setdefault(short[1], word)
    return Scrubber(replacements, _vocabulary(run) | frozenset(names.values()))


def domains(run: Run, scrub: Scrubber) -> dict[str, str]:
    """Libvirt domain → the name of its guest's role, or `guest-1`, … if its guest is unknown."""
    published: dict[str, str] = {}
    for number, domain in enumerate(_domains(run), start=1):
        name = scrub.known.get(domain, "[guest]")
        published[domain] = f"guest-{number}" if name.startswith("[") else name
    return published


def _domains(run: Run) -> list[str]:
    return [name for facts in run.hosts.values() for name in facts.domains]


def _vocabulary(run: Run) -> frozenset[str]:
    """Names that the run itself uses. They stay, because its lists and tables must still match each other."""
    experiment = run.manifest.experiment
    words = {run.manifest.run_id, experiment.name, *run.manifest.accelerators}
    words |= {run.manifest.site.name} if run.manifest.site else set()
    words |= {*experiment.environments, *experiment.servers, *experiment.workloads}
    for workload in run.manifest.workloads.values():
        words |= set(workload.tools)
    for facts in run.hosts.values():
        words |= set(facts.servers)
    return frozenset((words | _schema_words(Manifest.model_json_schema())) - {""})


def _schema_words(schema: object) -> set[str]:
    """The keys of run.json and the values that it lists: words of the format, which name no machine."""
    if isinstance(schema, list):
        return {word for part in schema for word in _schema_words(part)}
    if not isinstance(schema, dict):
        return set()
    words = {str(word) for word in (*schema.get("properties", {}), *schema.get("enum", []), schema.get("const", ""))}
    return words | {word for part in schema.values() for word in _schema_words(part)}


def manifest(run: Run, scrubber: Scrubber, operator: str) -> Manifest:
    """run.json without names; `operator` becomes the one who ran it. Raises LoadError if scrubbing makes it invalid."""
    document = run.manifest.model_dump(mode="json", by_alias=True)
    disclosure = document.pop("disclosure", None)
    content = scrubber.tree(document)
    if service := run.manifest.experiment.service:
        loads = content["experiment"]["service"]["loads"]
        content["experiment"]["service"] = service.without_names().model_dump(mode="json") | {"loads": loads}
    if disclosure is not None:
        content["disclosure"] = _disclosure(disclosure, scrubber, roles(run.hosts)) | {"operator": operator}
    try:
        return Manifest.model_validate_json(json.dumps(content))
    except ValueError as error:
        raise LoadError(f"{run.path / 'run.json'}: a key or a name in it names a machine: {error}") from None


def _disclosure(block: dict[str, Any], scrubber: Scrubber, names: dict[str, str]) -> dict[str, Any]:
    """The disclosure with roles as names; versions, which may look like addresses, lose only known names."""
    return {
        "machines": {
            names.get(name, "[host]"): {
                item: disclosed
                | {"text": scrubber.names(disclosed["text"]) if item in VERSIONS else scrubber.text(disclosed["text"])}
                for item, disclosed in items.items()
            }
            for name, items in block["machines"].items()
        },
        "virtual": [names[name] for name in block["virtual"] if name in names],
    }


VERSIONS = frozenset({"packages", "kernel", "nic_firmware", "firmware"})


def record(trial: TrialRecord, scrubber: Scrubber) -> TrialRecord:
    """The trial without names."""
    return replace(trial, findings=tuple(_finding(finding, scrubber) for finding in trial.findings))


def _finding(finding: Finding, scrubber: Scrubber) -> Finding:
    """The finding without names; its payload is made from the text without names. An accident loses its detail: other
    programs write it, and it may say anything.
    """
    return replace(
        finding,
        machine=finding.machine and scrubber.text(finding.machine),
        process=finding.process and scrubber.text(finding.process),
        detail="" if finding.code in ACCIDENTS else scrubber.text(finding.detail),
        payload=None,
    )


def _private(path: Path) -> Facts:
    """Read the private names that the runner wrote for scrubbing alone; older runs have none."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise LoadError(f"{path}: expected an object")
    return content


PUBLISHED = (
    "role", "environment", *COMPARED, "hardware", "hypervisor", "kvm_modules", "kvm_flags", "crypto_flags",
    "qemu_version", "libvirt_version", "cpu_latency_us",
)  # fmt: skip
# Kernel parameters that change how a machine performs; the rest may name disks, hosts, users and addresses.
_PARAMETERS = frozenset({
    "ro", "rw", "quiet", "mitigations", "spectre_v2", "spectre_v2_user", "spec_store_bypass_disable", "l1tf", "mds",
    "tsx", "tsx_async_abort", "pti", "nopti", "retbleed", "srbds", "nosmt", "isolcpus", "nohz", "nohz_full",
    "rcu_nocbs", "irqaffinity", "maxcpus", "nr_cpus", "mem", "hugepages", "hugepagesz", "default_hugepagesz",
    "transparent_hugepage", "intel_pstate", "amd_pstate", "intel_idle.max_cstate", "processor.max_cstate", "idle",
    "cpufreq.default_governor", "cpuidle.off", "clocksource", "tsc", "hpet", "iommu", "intel_iommu", "amd_iommu",
    "kvm-intel.nested", "kvm-amd.nested", "kvm.halt_poll_ns", "numa_balancing", "preempt", "skew_tick",
    "audit", "selinux", "apparmor", "lockdown", "net.ifnames", "fsck.mode",
})  # fmt: skip
_ELEMENTS = frozenset({
    "domain", "memory", "currentMemory", "vcpu", "vcpus", "iothreads", "cputune", "vcpupin", "emulatorpin",
    "iothreadpin", "shares", "period", "quota", "numatune", "memnode", "memoryBacking", "hugepages", "page", "locked",
    "nosharepages", "os", "type", "features", "acpi", "apic", "pae", "hyperv", "kvm", "hidden", "poll-control",
    "pvspinlock", "ioapic", "cpu", "model", "topology", "feature", "cache", "numa", "cell", "clock", "timer", "pm",
    "devices", "disk", "driver", "target", "format", "backingStore", "blockio", "iotune", "controller", "interface",
    "tune", "sndbuf", "mtu", "bandwidth", "inbound", "outbound", "memballoon", "rng", "rate", "watchdog", "hostdev",
})  # fmt: skip
_SECRET_ATTRIBUTES = frozenset({"id", "dev", "file", "name_prefix", "serial", "address", "path"})


def facts(host: HostFacts, scrubber: Scrubber, domains: dict[str, str]) -> HostFacts:
    """The published facts of one host; `domains`: a guest's domain → its published name."""
    recorded = host.recorded
    kept = {key: recorded[key] for key in PUBLISHED if key in recorded}
    if host.cmdline is not None:
        kept["cmdline"] = command_line(host.cmdline)
    clean: Facts = scrubber.tree(kept)
    if "domains" in recorded:
        clean["domains"] = {
            domains[name]: scrubber.text(domain_xml(text, domains[name])) for name, text in host.domains.items()
        }
    return HostFacts.model_validate(clean)


def command_line(text: str) -> str:
    """A kernel command line without the parameters that may name something, and with the number of those left out."""
    words = text.split()
    kept = [word for word in words if word.partition("=")[0] in _PARAMETERS]
    left_out = len(words) - len(kept)
    return " ".join([*kept, f"({left_out} more left out)"] if left_out else kept)


def domain_xml(text: str, name: str) -> str:
    """A libvirt domain's definition under another name, reduced to what affects its performance."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return "(left out: not a domain definition)"
    _reduce(root)
    title = ElementTree.Element("name")
    title.text = name
    root.insert(0, title)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode")


def _reduce(element: ElementTree.Element) -> None:
    for attribute in _SECRET_ATTRIBUTES.intersection(element.attrib):
        del element.attrib[attribute]
    for child in list(element):
        if child.tag in _ELEMENTS:
            _reduce(child)
        else:
            element.remove(child)
    if not (element.text or "").strip():
        element.text = None
