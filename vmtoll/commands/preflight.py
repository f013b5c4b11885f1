"""The command `preflight`: prints the result of each check as it comes."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer

from vmtoll.commands.answer import print_either
from vmtoll.commands.help import describe
from vmtoll.commands.options import InventoryOption, JsonOption, LimitOption, SuiteOption
from vmtoll.lab import embedded
from vmtoll.model.complaint import Complaint, Level
from vmtoll.preflight import Lab, results
from vmtoll.shell import say

describe("preflight", "vmtoll preflight -i lab.yml", "vmtoll preflight --count", exits={1: "a check failed"})


def preflight(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    count: Annotated[
        bool, typer.Option("--count", help="Check instead what `vmtoll count` needs of this machine.")
    ] = False,
    suite: SuiteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the machines of a lab before anything runs.

    Each line has the result (ok, warn, fail), the check, the machine, the finding and the fix. Preflight changes
    nothing. It sends load (iperf3, 2 s each way between each client and each machine under test) only to machines that
    no run uses.
    """
    if count:
        from vmtoll.counting.requirements import this_machine  # noqa: PLC0415

        checks = this_machine(suite).checks()
        raise SystemExit(print_results((("count", each) for each in checks), as_json=as_json))
    lab = Lab.read(inventory or embedded.require(), limit, say)
    try:
        code = print_results(results(lab), as_json=as_json)
    finally:
        lab.close()
    raise SystemExit(code)


def print_results(results_of_checks: Iterable[tuple[str, Complaint]], *, as_json: bool) -> int:
    """Print (name of the check, result) as they come; return the exit code."""
    results_by_check = []
    for name, result in results_of_checks:
        results_by_check.append((name, result))
        if not as_json:
            print(_line(name, result), flush=True)
    levels = Counter(result.level for _, result in results_by_check)
    findings = [{"check": name, **asdict(result)} for name, result in results_by_check]
    print_either(as_json, lambda: {"fit": not levels["fail"], "findings": findings}, lambda: summary(levels))
    return 1 if levels["fail"] else 0


def summary(levels: Counter[Level]) -> str:
    """The last line: "Preflight failed: 3 errors, 2 warnings, 12 passed"."""
    counted = [(levels["fail"], "error"), (levels["warn"], "warning")]
    parts = [f"{count} {noun}{'s' * (count != 1)}" for count, noun in counted]
    return f"Preflight {'failed' if levels['fail'] else 'passed'}: {', '.join(parts)}, {levels['ok']} passed"


def _line(check: str, result: Complaint) -> str:
    text = f"{result.found}. {result.advice}" if result.advice else result.found
    return f"{result.level:4}  {check:9}  {result.machine or '-':14}  {text}"
