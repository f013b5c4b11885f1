"""replication.html: every claim of the published experiments, and what the runs here show of it."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from vmtoll.analysis.claims import count_outcomes
from vmtoll.analysis.published import Point, points
from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.claim import Outcome
from vmtoll.model.facts import HostFacts, kvm_hosts
from vmtoll.model.finding import Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.report import charts, words
from vmtoll.report.page import environment, inline_svg, write
from vmtoll.report.panels import measured_arms
from vmtoll.report.plot import Chart

MOST_LANES = 24  # a chart with more rows shows nothing at a glance


@dataclass(frozen=True)
class ExperimentSection:
    """One experiment of the page, from one run of it."""

    run: Run
    analysis: RunAnalysis
    anchor: str
    points: list[Point]
    chart: tuple[str, Chart, Markup] | None
    report: str | None

    @property
    def counts(self) -> dict[Outcome, int]:
        """Outcome → number of claims."""
        return count_outcomes(self.analysis.claims)

    @property
    def trials(self) -> str:
        """`90 trials, 12 suspect, 3 invalid (client-saturated 10, background-cpu 4, tool-failed 3)`."""
        counts, findings = self.analysis.counts, self.analysis.findings
        parts = [words.plural(sum(counts.values()), "trial")]
        parts += [f"{counts[v]} {v}" for v in (Validity.SUSPECT, Validity.INVALID) if counts.get(v)]
        codes = ", ".join(f"{code} {count}" for code, count in findings.items())
        return ", ".join(parts) + (f" ({codes})" if codes else "")

    @property
    def accelerators(self) -> str:
        """`kvm-default: TCG (emulation), hardware nested`."""
        return ", ".join(self._platform_text(arm) for arm in measured_arms(self.run))

    def _platform_text(self, arm: Arm) -> str:
        accelerator, hardware = self.run.accelerator(arm), self.run.hardware(arm)
        if accelerator is Accelerator.NONE:
            machine = "a container, its machine" if self.run.manifest.lab == "embedded" else "no guest, hardware"
            return f"{arm}: {machine} {hardware}"
        return f"{arm}: {accelerator.text}, hardware {hardware}"


def write_page(runs: Sequence[tuple[Run, RunAnalysis]], output: Path) -> Path:
    """Write the page of these runs, in this order, to the file `output` (replaced whole) and return its path."""
    sections = [_section(run, analysis, number, output) for number, (run, analysis) in enumerate(runs, start=1)]
    text = environment().get_template("replication.html.j2").render(
        sections=sections, sentence=_sentence(sections), basis=_basis(sections),
        emulated=any(section.analysis.emulated for section in sections),
        kvm_kinds=[kind for kind in Hardware if any(kind in section.analysis.kvm_hardware for section in sections)],
    )  # fmt: skip
    return write(output, text)


def _section(run: Run, analysis: RunAnalysis, number: int, output: Path) -> ExperimentSection:
    report = run.path / "report.html"
    link = quote(os.path.relpath(report, output.parent)) if report.is_file() else None
    return ExperimentSection(run, analysis, f"e{number}", points(run), _chart(run, analysis, f"e{number}"), link)


def _chart(run: Run, analysis: RunAnalysis, anchor: str) -> tuple[str, Chart, Markup] | None:
    """The chart that shows most: goodput of a sweep, else the claims, else throughput if it has few lanes."""
    is_small = len(run.scenarios) * len(run.arms) <= MOST_LANES
    for kind in ("goodput", "claims", *(["throughput"] if is_small else [])):
        if drawn_charts := charts.draw_all(run, analysis, [kind]):
            name, chart = drawn_charts[0]
            return f"{anchor}-{name}", chart, Markup(inline_svg(chart, f"{anchor}-{name}"))
    return None


def _sentence(sections: Sequence[ExperimentSection]) -> str:
    total = Counter(claim.outcome for section in sections for claim in section.analysis.claims)
    experiments = len({section.run.manifest.experiment.name for section in sections if section.analysis.claims})
    outcomes = ", ".join(f"{total[outcome]} {outcome.text}" for outcome in Outcome)
    return (
        f"Of {words.plural(total.total(), 'published claim')} in {words.plural(experiments, 'experiment')}: {outcomes}."
    )


def _basis(sections: Sequence[ExperimentSection]) -> list[tuple[str, list[str]]]:
    """What the outcomes rest on: (heading, the distinct values over all runs)."""
    values: dict[str, list[str]] = {}
    for section in sections:
        manifest = section.run.manifest
        hosts = _physical(section.run)
        values.setdefault("Machine", []).extend(map(_machine, hosts))
        values.setdefault("Kernel", []).extend(str(host.kernel) for host in hosts if host.kernel)
        values.setdefault("Environments", []).append(section.accelerators)
        values.setdefault("Lab", []).append(manifest.lab)
        values.setdefault("Scale", []).append(manifest.experiment.scale or "one size")
        values.setdefault("Measured", []).append(manifest.started_at[:10])
    return [(name, list(dict.fromkeys(filter(None, texts)))) for name, texts in values.items() if any(texts)]


def _physical(run: Run) -> list[HostFacts]:
    """The machine that is metal; without one, the KVM hosts of the guests."""
    return [run.machine(arm.environment) for arm in run.metal[:1]] or list(kvm_hosts(run.hosts).values())


def _machine(host: HostFacts) -> str:
    cpus, memory_kib = host.cpus_allowed, host.memory_kib
    parts = [
        host.cpu_model,
        cpus and f"CPUs allowed: {cpus}",
        memory_kib and f"{memory_kib / 1024**2:.1f} GiB",
    ]
    return ", ".join(str(part) for part in parts if part)
