"""The equality proof: the facts of the environments that are equal, differ as declared, or differ undeclared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vmtoll.analysis.run import Run
from vmtoll.model.facts import COMPARED, Facts, agree, covers, entries_of, flatten, is_explained_absence
from vmtoll.model.trial import Arm, Scenario

# The facts of a machine and of a server that may be why two runs differ → whether a ratio of two environments answers
# another question when that fact differs.
MACHINE_FACTS = {"cpu_model": True, "kernel": False, "memory_kib": False, "content_digest": True, "workers": True}
SERVER_FACTS = {"version": True, "binary_sha256": True, "config_sha256": True, "workers": True}
DECISIVE = frozenset(
    prefix + fact.replace("_", " ")
    for prefix, facts in (("", MACHINE_FACTS), ("server ", SERVER_FACTS))
    for fact, decisive in facts.items()
    if decisive
)


def scenario_facts(run: Run, scenario: Scenario, arm: Arm) -> Facts:
    """Facts that make a scenario another one when they differ: accelerator, hardware, lab, link, tools, load, site."""
    manifest = run.manifest
    facts: Facts = {"accelerator": run.accelerator(arm).value, "hardware": run.hardware(arm).value}
    facts |= {"lab": manifest.lab, "link": manifest.link}
    tools = {tool for tool in (run.tool(scenario), run.crosscheck(scenario)) if tool}
    facts |= {f"version of {tool}": manifest.versions.get(tool) for tool in sorted(tools)}
    for kind, document in (("workload", manifest.workloads[scenario.workload]), ("site", manifest.site)):
        content = document.model_dump(mode="json", exclude={"name", "description"}) if document else {}
        facts |= {f"{kind} {key}": value for key, value in content.items()}
    return {name: value for name, value in facts.items() if value is not None}


def machine_facts(run: Run, server: str, arm: Arm) -> Facts:
    """Facts of an arm's machine and of a server on it that may be why two runs differ."""
    host = run.machine(arm.environment)
    facts = {fact.replace("_", " "): getattr(host, fact) for fact in MACHINE_FACTS}
    facts |= {f"server {fact.replace('_', ' ')}": getattr(host.server(server), fact) for fact in SERVER_FACTS}
    return {name: value for name, value in facts.items() if value is not None}


class FactStatus(StrEnum):
    """UNDECLARED: a difference that the experiment does not declare. ONE_SIDED: equal where it is known, but unknown on
    some machines. CHANGED: what the command of a change did, which did not say what it would.
    """

    UNDECLARED = "undeclared"
    ONE_SIDED = "one_sided"
    CHANGED = "changed"
    DECLARED = "declared"
    EQUAL = "equal"


_PROOF_FACTS = ("binary_sha256", "config_sha256", "workers", "version")
_GROUPED_FACTS = ("packages", "sysctls")


# Statuses of differences, or possible ones, that the experiment does not declare.
OPEN_STATUSES = frozenset({FactStatus.UNDECLARED, FactStatus.ONE_SIDED})


@dataclass(frozen=True)
class ComparedFact:
    """One compared fact, `servers: nginx: version`."""

    name: str
    status: FactStatus
    # environment → what to print, None where the machine lacks the fact; one entry when equal
    values: Mapping[str, str | None] = field(default_factory=dict)
    count: int | None = None  # the number of facts in a group of equal ones


def equality(run: Run) -> list[ComparedFact]:
    """Compare the machines under test, also with themselves as a change left them; undeclared differences first, equal
    facts last.
    """
    machines = machines_under_test(run)
    facts = _compare_machines(run, machines) if len(machines) > 1 else []
    facts = _add_changes(run, _add_runner_differences(run, facts))
    differences = [fact for fact in facts if fact.status is not FactStatus.EQUAL]
    ranks = list(FactStatus)
    return sorted(differences + _group_equal(facts), key=lambda fact: ranks.index(fact.status))


def _compare_machines(run: Run, machines: Mapping[str, Facts]) -> list[ComparedFact]:
    declared = list(run.manifest.differences.declared)
    flat = {environment: dict(flatten(facts)) for environment, facts in machines.items()}
    names = list(dict.fromkeys(name for facts in flat.values() for name in facts))
    declared += _absent(machines.values(), declared)
    # A sandbox with its own kernel shows no settings of it, and those of its host do not apply.
    own_kernels = {name for name, facts in machines.items() if facts.get("runtime") and not facts.get("sysctls")}

    def values_of(fact: str) -> dict[str, str | None]:
        left_out = own_kernels if fact.startswith("sysctls: ") else ()
        return {name: values.get(fact) for name, values in flat.items() if name not in left_out}

    compared = [_compare(name, values_of(name), declared) for name in names]
    if own_kernels:
        not_visible = dict.fromkeys(sorted(own_kernels), "not visible: its own kernel")
        compared.append(ComparedFact("sysctls", FactStatus.DECLARED, not_visible))
    return compared


def machines_under_test(run: Run) -> dict[str, Facts]:
    """Environment → facts of its machine, each machine once, the baseline's first. A change or an operation counts as
    the environment that it is made to.
    """
    environments = [run.baseline.environment, *(arm.environment for arm in run.arms)]
    machines = dict.fromkeys(map(run.manifest.experiment.machine_of, environments))
    return {machine: facts for machine in machines if (facts := run.machine(machine).recorded)}


def _compare(name: str, values: dict[str, str | None], declared: list[str]) -> ComparedFact:
    printed = {environment: value and short(value) for environment, value in values.items()}
    if agree(name, values.values()):
        return ComparedFact(name, FactStatus.EQUAL, dict(list(printed.items())[:1]))
    if any(covers(item, name) for item in declared):
        return ComparedFact(name, FactStatus.DECLARED, printed)
    # The result of a TLS handshake is known only where the server was measured.
    equal_where_known = ": tls: " in name and len({value for value in values.values() if value is not None}) == 1
    return ComparedFact(name, FactStatus.ONE_SIDED if equal_where_known else FactStatus.UNDECLARED, printed)


def _absent(machines: Iterable[Facts], declared: list[str]) -> list[str]:
    """The entries that some machines lack, by what is declared: `servers: h2o` of a release without it."""
    absent = []
    for fact in COMPARED:
        maps = [value for facts in machines if isinstance(value := facts.get(fact), dict)]
        if entries := entries_of(declared, fact):
            missing = {key for entry in maps for key in entry if not all(key in other for other in maps)}
            absent += [name for key in sorted(missing) if is_explained_absence(entries, name := f"{fact}: {key}")]
    return absent


def _add_runner_differences(run: Run, facts: list[ComparedFact]) -> list[ComparedFact]:
    """Add the differences that only the runner saw: it compared the machines as they were in the run."""
    for difference in run.manifest.differences.undeclared:
        name = difference.fact
        values = {environment: short(str(value)) for environment, value in difference.values.items()}
        if any(covers(name, fact.name) and fact.status is FactStatus.UNDECLARED for fact in facts):
            facts = [replace(fact, values={**values, **fact.values}) if fact.name == name else fact for fact in facts]
            continue
        of_all = next((fact.values for fact in facts if fact.name == name and len(fact.values) > len(values)), {})
        facts = [fact for fact in facts if not covers(name, fact.name)]
        facts.append(ComparedFact(name, FactStatus.UNDECLARED, {**values, **of_all}))
    return facts


def _add_changes(run: Run, facts: list[ComparedFact]) -> list[ComparedFact]:
    """Add what changes did to their machines, by what they say of it; such a fact is not equal any more."""
    changes = run.manifest.experiment.changes
    for difference in run.manifest.differences.changed:
        by_command = any(
            changes[environment].explains is None for environment in difference.values if environment in changes
        )
        values = {environment: value and short(str(value)) for environment, value in difference.values.items()}
        facts = [fact for fact in facts if (fact.name, fact.status) != (difference.fact, FactStatus.EQUAL)]
        facts.append(ComparedFact(difference.fact, FactStatus.CHANGED if by_command else FactStatus.DECLARED, values))
    return facts


def _group_equal(facts: list[ComparedFact]) -> list[ComparedFact]:
    """The equal facts; all package versions become one entry with their count, and all kernel settings another."""
    single_facts, group_sizes = [], dict.fromkeys(_GROUPED_FACTS, 0)
    for fact in facts:
        group, _, entry = fact.name.partition(": ")
        if fact.status is not FactStatus.EQUAL:
            continue
        if group in group_sizes and entry:
            group_sizes[group] += 1
        else:
            single_facts.append(fact)
    single_facts += [ComparedFact(group, FactStatus.EQUAL, count=n) for group, n in group_sizes.items() if n]
    return sorted(single_facts, key=lambda fact: (not _is_proof(fact.name), fact.name))


def _is_proof(name: str) -> bool:
    return name.rpartition(": ")[2] in _PROOF_FACTS or name == "content_digest"


def short(value: str) -> str:
    """Shorten a digest to its first twelve digits; leave anything else whole."""
    hexadecimal = len(value) >= 40 and all(c in "0123456789abcdef" for c in value)
    return f"{value[:12]}…" if hexadecimal else value
