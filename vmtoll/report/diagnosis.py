"""A diagnosis as text: each step that the guest lacks, its worth and the run that measured it, and the XML to apply."""

from collections.abc import Iterator, Sequence
from textwrap import indent

from vmtoll.model.diagnosis import LIMITS, Diagnosis, State, Step, TuningRun, Worth
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import plural
from vmtoll.model.metric import HOST_CPU
from vmtoll.report.words import KVM_HARDWARE
from vmtoll.report.words import diagnosis as words

_MOST_THREADS = 12


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The lines for one guest: findings, each with its worth and its change; then how to restore the definition."""
    steps = diagnosis.steps
    lacking = [step for step in steps if step.state is State.LACKING]
    yield f"{words.name_of(diagnosis)} on {diagnosis.where}: {words.counts_text(steps)}"
    for number, step in enumerate(lacking, start=1):
        yield ""
        yield f"{number}. {words.lacking_text(step)}"
        if step.tuning not in LIMITS:
            yield from _worth(diagnosis.worth.get(step.tuning, ()))
        yield from _change(step, refusal_shown=bool(diagnosis.refused))
    if diagnosis.refused:
        yield ""
        yield f"vmtoll prints no change, because libvirt refuses the definition as it is: {diagnosis.refused}."
    unknown = [words.unknown_text(step) for step in steps if step.state is State.UNKNOWN]
    for title, listed in (("Unknown", unknown), ("Taken", words.taken_texts(steps))):
        if listed:
            yield ""
            yield f"{title}: {'; '.join(listed)}"
    if diagnosis.threads:
        yield ""
        yield from _threads(diagnosis)
    if diagnosis.monitor:
        yield ""
        yield words.monitor_text(diagnosis)
    if diagnosis.save_command and any(step.apply or step.options for step in lacking):
        yield ""
        yield f"Save the definition first: `{diagnosis.save_command}`"
        yield f"Restore it: `{diagnosis.restore_command}`"
        yield words.EFFECTS[diagnosis.kind]
    for run in diagnosis.runs:
        yield ""
        yield from _run(run)


def summary_lines(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    """A line for each guest, in the given order."""
    width = max((len(words.name_of(diagnosis)) for diagnosis in diagnoses), default=0)
    for diagnosis in diagnoses:
        lacking = dict.fromkeys(step.tuning for step in diagnosis.steps if step.state is State.LACKING)
        names = ", ".join(tuning.value for tuning in lacking) or "nothing"
        off = "" if diagnosis.running else "(off) "
        if not diagnosis.steps:
            yield f"{words.name_of(diagnosis):{width}}  {diagnosis.monitor}"
            continue
        unknown = {step.tuning for step in diagnosis.steps if step.state is State.UNKNOWN} - {*lacking}
        names += f"; {len(unknown)} unknown" if unknown else ""
        names += f" ({diagnosis.program}: limits only)" if diagnosis.program else ""
        yield f"{words.name_of(diagnosis):{width}}  {off}lacks {len(lacking)}: {names}"


def _threads(diagnosis: Diagnosis) -> Iterator[str]:
    """The threads of the process that use a CPU, or wait for one, the most."""
    if diagnosis.program:
        yield f"Of {diagnosis.program}, vmtoll reads limits and threads; it knows no definition and prints no changes."
    yield "Threads, in percent of a CPU (running, ready but waiting for a CPU):"
    busiest = sorted(diagnosis.threads, key=lambda t: ((t.cpu_pct or 0) + (t.wait_pct or 0), t.cpu_s), reverse=True)
    for thread in busiest[:_MOST_THREADS]:
        yield f"  {thread.tid:>8}  {thread.name:16} {thread.cpu_pct or 0:6.1f} {thread.wait_pct or 0:6.1f}"
    if busiest[_MOST_THREADS:]:
        yield f"  {plural(len(busiest) - _MOST_THREADS, 'more thread')}"


def _worth(results: tuple[Worth, ...]) -> Iterator[str]:
    """The worth of a step in the primary metrics and in host CPU, and the run that measured it."""
    shown = [worth for worth in results if worth.metric.is_primary or worth.metric.name == HOST_CPU.name]
    if not shown:
        yield "   Worth: unknown, no tuning run here measured it."
        return
    yield f"   Worth, by {shown[0].run} ({words.profiles_text(shown[0])}):"
    yield from (f"     {words.worth_text(worth)}" for worth in shown)


def _change(step: Step, *, refusal_shown: bool) -> Iterator[str]:
    """The change of a step and the command that makes it. `refusal_shown`: another line says why there is no change."""
    if step.xml:
        yield "   Change:"
        yield indent(step.xml, "     ")
    if step.options:
        yield f"   Options of QEMU{'' if step.instead else ', in addition'}:"
        yield f"     {step.options}"
    if step.instead:
        yield "   Instead of:"
        yield f"     {step.instead}"
    if step.apply:
        yield "   Apply:"
        yield f"     {step.apply}"
    if step.undo:
        yield "   Undo:"
        yield f"     {step.undo}"
    if text := "" if refusal_shown and step.refused else words.condition_text(step):
        yield f"   {text}"


def _run(run: TuningRun) -> Iterator[str]:
    origin = "measured here" if run.local else "committed with vmtoll, measured on another machine"
    yield f"{run.name}: {origin}, {run.started_at[:10]}, host CPU {', '.join(run.cpu_models) or 'not recorded'}."
    if run.emulated:
        yield "Its guests were emulated: its figures say nothing about KVM."
    for kind in run.kvm_hardware:
        if texts := KVM_HARDWARE.get(Hardware(kind)):
            yield texts[0]
