"""The inventory has all that a run needs, and no variable that vmtoll does not know."""

from collections.abc import Iterator

from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok, warn
from vmtoll.spec.inventory_faults import faults

ORDER = 10


def check(lab: Lab) -> Iterator[CheckResult]:
    """Check values, groups, environments, guests' variables, variables that must be the same, unknown variables."""
    wrong = [
        (fail if fault.is_error else warn)(fault.machine, fault.observation, _sentence(fault.advice))
        for fault in faults(lab.machines, limited=lab.limited)
    ]
    yield from wrong
    if not any(result.level == "fail" for result in wrong):
        parts = ", ".join(f"{len(hosts)} {role}" for role, hosts in lab.by_role.items() if hosts)
        yield ok("", f"{lab.path}: {parts}")


def _sentence(advice: str) -> str:
    return advice if advice.endswith("?") else f"{advice}."
