"""replication.html: every claim of the published experiments, and what the runs here say to it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from analysis import charts
from analysis.claims import HELD, NOT_HELD, OUTCOMES, UNKNOWN, Judged, counts, judge_claims
from analysis.load import Run, load_run
from analysis.page import environment
from analysis.panels import side_environments
from analysis.plot import Chart
from analysis.replication import points
from analysis.svg import inline_svg
from analysis.verdict import verdict_of

MOST_LANES = 24  # a chart of more rows than that says nothing at a glance


@dataclass(frozen=True)
class Part:
    """One experiment of the page, from one run of it."""

    run: Run
    name: str
    anchor: str
    question: str
    source: str
    judged: list[Judged]
    skipped: list[dict[str, str]]
    points: list[dict[str, Any]]
    chart: tuple[str, Chart, Markup] | None
    report: str | None

    @property
    def meta(self) -> dict[str, Any]:
        """What run.json says."""
        return self.run.meta

    @property
    def counts(self) -> dict[str, int]:
        """Outcome → claims."""
        return counts(self.judged)

    @property
    def incomplete(self) -> bool:
        """True when trials are still to come."""
        return bool(self.meta["status"] != "complete")

    @property
    def blocks(self) -> int:
        """How many blocks have a trial."""
        return int(self.run.trials["block"].nunique())

    @property
    def trials(self) -> str:
        """`90 trials, 12 of them suspect, 3 invalid (client-saturated 10, foreign-cpu 4, tool-failed 3)`."""
        verdicts = Counter(self.run.trials["verdict"])
        codes = Counter(code for row in self.run.trials["codes"] for code in set(row)).most_common()
        words = [f"{len(self.run.trials)} trials"]
        words += [f"{verdicts[name]} {name}" for name in ("suspect", "invalid") if verdicts[name]]
        fired = f" ({', '.join(f'{code} {count}' for code, count in codes)})" if codes else ""
        return ", ".join(words) + fired

    @property
    def accelerators(self) -> str:
        """`kvm-default: tcg (emulated)`."""
        words = {"none": "bare metal", "kvm": "KVM", "tcg": "TCG (emulated)"}
        found = ((e, self.run.accelerator(e)) for e in side_environments(self.run))
        return ", ".join(f"{e}: {words.get(a, a)}" for e, a in found)


def write_page(folders: Sequence[Path], output: Path) -> Path:
    """Write the page of these runs, in this order, to the file `output` (replaced whole) and return its path.

    Raises LoadError when a run breaks the contract.
    """
    parts = [_part(load_run(folder), place, output) for place, folder in enumerate(folders, start=1)]
    text = environment().get_template("replication.html.j2").render(
        parts=parts,
        sentence=_sentence(parts),
        emulated=any(part.run.emulated for part in parts),
        basis=_basis(parts),
        outcomes=OUTCOMES,
    )  # fmt: skip
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_suffix(".html.part")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(output)


def _part(run: Run, place: int, output: Path) -> Part:
    experiment = run.meta["experiment"]
    report = run.path / "report.html"
    link = quote(os.path.relpath(report, output.parent)) if report.is_file() else None
    return Part(
        run=run,
        name=str(experiment.get("name", "experiment")),
        anchor=f"e{place}",
        question=str(experiment.get("question") or ""),
        source=str(experiment.get("source") or ""),
        judged=judge_claims(run),
        skipped=list(run.meta.get("skipped") or []),
        points=points(run),
        chart=_chart(run, f"e{place}"),
        report=link,
    )


def _chart(run: Run, anchor: str) -> tuple[str, Chart, Markup] | None:
    """The one that shows most: of a ladder its goodput, else the claims, else the throughput where it is small."""
    small = len(run.scenarios) * len(run.environments) <= MOST_LANES
    for kind in ("goodput", "claims", *(["throughput"] if small else [])):
        drawn = charts.draw_all(run, verdict_of(run) if kind == "throughput" else {}, [kind])
        if drawn:
            name, chart = drawn[0]
            return f"{anchor}-{name}", chart, Markup(inline_svg(chart, f"{anchor}-{name}"))
    return None


def _sentence(parts: Sequence[Part]) -> str:
    total = Counter[str]()
    for part in parts:
        total.update(part.counts)
    claims, experiments = sum(total.values()), len({part.name for part in parts if part.judged})
    return (
        f"Of {claims} published claim{'' if claims == 1 else 's'} in {experiments}"
        f" experiment{'' if experiments == 1 else 's'}, {total[HELD]} held, {total[NOT_HELD]} did not hold,"
        f" {total[UNKNOWN]} cannot be told here."
    )


def _basis(parts: Sequence[Part]) -> list[tuple[str, list[str]]]:
    """What the outcomes rest on: (heading, the different values over all runs)."""
    found: dict[str, list[str]] = {}
    for part in parts:
        meta = part.meta
        suts = [h for h in part.run.hosts.values() if isinstance(h, dict) and h.get("environment") == "metal"]
        found.setdefault("Machine", []).extend(_machine(host) for host in suts)
        found.setdefault("Kernel", []).extend(str(host.get("kernel")) for host in suts)
        found.setdefault("Environments", []).append(part.accelerators)
        found.setdefault("Lab", []).append(str(meta.get("lab") or "unknown"))
        found.setdefault("Scale", []).append(str(meta["experiment"].get("scale") or "one size"))
        found.setdefault("Measured", []).append(str(meta.get("started_at") or "")[:10])
    return [(name, list(dict.fromkeys(filter(None, values)))) for name, values in found.items() if any(values)]


def _machine(host: dict[str, Any]) -> str:
    memory = host.get("memory_kib")
    parts = [host.get("cpu_model"), f"CPUs allowed: {host['cpus_allowed']}" if host.get("cpus_allowed") else None]
    parts.append(f"{memory / 1024**2:.1f} GiB" if memory else None)
    return ", ".join(str(part) for part in parts if part)
