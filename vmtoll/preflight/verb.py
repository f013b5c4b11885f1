"""The verb `preflight`: findings, printed as they come."""

import json
from collections import Counter
from dataclasses import asdict

from vmtoll import lab as embedded
from vmtoll.options import InventoryOption, JsonOption, LimitOption
from vmtoll.preflight import findings
from vmtoll.preflight.finding import Finding
from vmtoll.preflight.lab import Lab
from vmtoll.progress import say


def preflight(inventory: InventoryOption = None, limit: LimitOption = None, as_json: JsonOption = False) -> None:
    """Check the machines of a lab before anything runs; exit code 1 when one of them is not fit to be measured.

    Says of each: what was checked, ok, warn or fail, what was found, what to do. It changes nothing, and sends load
    (iperf3, 2 s each way between each client and each machine under test) only where nothing else is going on.
    """
    lab = Lab.read(inventory or embedded.require(), limit, say)
    seen: list[tuple[str, Finding]] = []
    try:
        for name, finding in findings(lab):
            seen.append((name, finding))
            if not as_json:
                print(_line(name, finding), flush=True)
    finally:
        lab.close()
    counts = Counter(finding.level for _, finding in seen)
    fit = not counts["fail"]
    if as_json:
        listed = [{"check": name, **asdict(finding)} for name, finding in seen]
        print(json.dumps({"fit": fit, "findings": listed}, indent=1, ensure_ascii=False))
    else:
        word = "fit to be measured" if fit else "NOT fit to be measured"
        print(f"{word}: {counts['ok']} ok, {counts['warn']} to know, {counts['fail']} to mend")
    raise SystemExit(0 if fit else 1)


def _line(check: str, finding: Finding) -> str:
    what = f"{finding.found}. {finding.advice}" if finding.advice else finding.found
    return f"{finding.level:4}  {check:9}  {finding.machine or '-':14}  {what}"
