"""Items that a run on these machines would disclose, and those it would print as "not disclosed"."""

from collections.abc import Iterator

from vmtoll.machines.facts import merge_disclosure
from vmtoll.model.disclosure import OPERATOR, Disclosure
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, ok, warn

ORDER = 95
_LIMIT_S = 180.0


def check(lab: Lab) -> Iterator[CheckResult]:
    """Ask every machine; report the items that neither it nor the inventory discloses."""

    def check_host(host: Host) -> list[CheckResult]:
        return [judge(host, lab.lines[host.name].call("disclosure", _LIMIT_S))]

    yield from lab.on_each(lab.answering_hosts(), check_host)
    if not any(OPERATOR in (host.vars.disclosure or {}) for host in lab.hosts):
        yield warn("", "nobody is named as who runs it", _advice(OPERATOR, "Jane Doe, Example University"))


def judge(host: Host, items: dict[str, str]) -> CheckResult:
    """Judge the items that one machine discloses; the advice has an example for the first item that it lacks."""
    disclosure_block: Disclosure = merge_disclosure([host], {host.name: items})
    missing = disclosure_block.missing(host.name)
    if not missing:
        return ok(host.name, f"discloses {len(disclosure_block.machines[host.name])} items")
    observation = f"not disclosed: {', '.join(item.label for item in missing)}"
    return warn(host.name, observation, _advice(missing[0].name, missing[0].example))


def _advice(name: str, example: str) -> str:
    return f"State what you know in vmtoll_disclosure of the inventory, such as {{{name}: '{example}'}}."
