"""Compare the facts of machines with each other, and those of a machine with and without a change."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vmtoll.machines.facts import facts_now
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError
from vmtoll.model.facts import COMPARED, HostFacts, agree, covers, entries_of, flatten, is_explained_absence
from vmtoll.model.run import Differences, MachineDifference


def of_run(session: Session) -> Differences:
    """The differences between all machines under test, and those between environments of one kin."""
    experiment, machines = session.resolved.experiment, session.inventory.machines
    facts = {
        environment if number == 1 else f"{environment}-{number}": (environment, session.facts[host.name].recorded)
        for environment, hosts in machines.items()
        for number, host in enumerate(hosts, start=1)
    }
    found = differences({name: recorded for name, (_, recorded) in facts.items()}, experiment.declared_differences)
    for kin in session.resolved.kin:
        suts = {
            name: recorded
            for name, (environment, recorded) in facts.items()
            if experiment.machine_of(environment) in kin.environments
        }
        undeclared = _merged(found.undeclared, differences(suts, kin.declared).undeclared)
        found = found.model_copy(update={"undeclared": undeclared})
    return found


def _compare(fact: str, values: dict[str, Any]) -> list[MachineDifference]:
    return [] if agree(fact, values.values()) else [MachineDifference(fact=fact, values=values)]


def _undeclared(
    difference: MachineDifference, entries: Sequence[str]
) -> tuple[MachineDifference | None, Sequence[str]]:
    """What is left of a difference without the declared ones among its `entries`, and those that were."""
    name, values = difference.fact, difference.values
    if whole := [item for item in entries if covers(item, name)]:
        return None, whole
    if None in values.values():
        return (None, entries) if is_explained_absence(entries, name) else (difference, [])
    if not all(isinstance(value, dict) for value in values.values()):
        return difference, []
    differing = {
        key for value in values.values() for key in value if not agree(key, [v.get(key) for v in values.values()])
    }
    declared = {key: [item for item in entries if covers(item, f"{name}: {key}")] for key in differing}
    left = {e: {key: v for key, v in value.items() if not declared.get(key)} for e, value in values.items()}
    return next(iter(_compare(name, left)), None), [item for items in declared.values() for item in items]


def differences(suts: Mapping[str, Mapping[str, Any]], declared: Sequence[str]) -> Differences:
    """Differences between the facts of the environments' machines.

    `declared` facts that differ are listed by name, all other differences with their values. A fact that is a mapping
    is compared entry by entry, under names such as `packages: nginx-light`; `declared` may name parts of an entry, as
    `servers: *: version`.
    """
    undeclared: list[MachineDifference] = []
    passed: list[str] = []
    for fact in COMPARED:
        values = {
            environment: facts.get(fact)
            for environment, facts in suts.items()
            if fact != "sysctls" or facts.get(fact) or not facts.get("runtime")  # else they are not visible
        }
        maps = {environment: v for environment, v in values.items() if isinstance(v, dict)}
        if len(maps) == len(values):
            names = sorted({name for v in maps.values() for name in v})
            fact_differences = [
                d for n in names for d in _compare(f"{fact}: {n}", {e: v.get(n) for e, v in maps.items()})
            ]
        else:
            fact_differences = _compare(fact, values)
        if fact in declared:
            passed += [fact] if fact_differences else []
            continue
        entries = entries_of(declared, fact)
        rest = [_undeclared(difference, entries) for difference in fact_differences]
        undeclared += [difference for difference, _ in rest if difference]
        passed += [item for item in entries if any(item in items for _, items in rest)]
    return Differences(declared=passed, undeclared=undeclared)


def note_change(session: Session, environment: str) -> None:
    """Record in run.json in which facts the machines of an environment differ with its change from without it, once a
    run, while the change is in place. A guest that is paused is left for another trial.

    Raises AgentError, HostLostError.
    """
    change = session.resolved.experiment.changes.get(environment)
    for number, sut in enumerate(session.inventory.machines.get(environment, ()) if change else (), start=1):
        if change is None or (environment, sut.name) in session.changed or sut.name in session.paused:
            continue
        try:
            now = facts_now(session, sut)
        except AgentError:
            if change.explains is not None:
                raise
            now = session.facts[sut.name]  # a command that may change anything may also remove what is read
        session.changed[environment, sut.name] = now
        suffix = "" if number == 1 else f"-{number}"
        _add_to_manifest(
            session,
            changes_of({change.of + suffix: session.facts[sut.name], environment + suffix: now}, change.explains),
        )


def changes_of(machine: Mapping[str, HostFacts], explains: Sequence[str] | None) -> Differences:
    """The facts in which a machine differs from itself. `machine`: environment → its facts, without and with a change;
    `explains`: what the change says that it changes, None where it may be anything. What handshakes agreed on is left
    out: it is known only of servers that were measured.
    """
    flat = {environment: dict(flatten(facts.recorded)) for environment, facts in machine.items()}
    found = Differences()
    for name in dict.fromkeys(name for facts in flat.values() for name in facts):
        values = {environment: facts.get(name) for environment, facts in flat.items()}
        if agree(name, values.values()) or ": tls: " in name:
            continue
        is_explained = explains is None or any(covers(item, name) for item in explains)
        (found.changed if is_explained else found.undeclared).append(MachineDifference(fact=name, values=values))
    return found


def _add_to_manifest(session: Session, found: Differences) -> None:
    if (manifest := session.store.manifest()) is None:
        return
    known = manifest.differences
    merged = known.model_copy(
        update={
            "undeclared": _merged(known.undeclared, found.undeclared),
            "changed": _merged(known.changed, found.changed),
        }
    )
    if merged != known:
        session.store.write_manifest(manifest.model_copy(update={"differences": merged}))


def _merged(known: Iterable[MachineDifference], found: Iterable[MachineDifference]) -> list[MachineDifference]:
    """Differences, each fact once, with the values of all environments."""
    values: dict[str, dict[str, Any]] = {}
    for difference in (*known, *found):
        values.setdefault(difference.fact, {}).update(difference.values)
    return [MachineDifference(fact=fact, values=by_environment) for fact, by_environment in values.items()]
