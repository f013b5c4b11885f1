"""A diagnosis as text: each step that the guest lacks, what it is worth by which run, and the XML that takes it."""

from collections.abc import Iterator
from textwrap import indent

from vmtoll.model.diagnosis import Diagnosis, State, Step, TuningRun, Worth
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import HOST_CPU
from vmtoll.report.words import KVM_HARDWARE
from vmtoll.report.words import diagnosis as words


def lines(diagnosis: Diagnosis, edit: str) -> Iterator[str]:
    """`edit`: the command that opens the guest's definition."""
    steps = diagnosis.steps
    lacking = [step for step in steps if step.state is State.LACKING]
    yield f"{diagnosis.guest} on {diagnosis.where}: {words.counts_text(steps)}"
    for number, step in enumerate(lacking, start=1):
        yield ""
        yield f"{number}. {words.lacking_text(step)}"
        yield from _worth(diagnosis.worth.get(step.tuning, ()))
        yield from _change(step)
    for title, state, text in (
        ("Unknown", State.UNKNOWN, words.unknown_text),
        ("Taken", State.TAKEN, words.taken_text),
    ):
        listed = [text(step) for step in steps if step.state is state]
        if listed:
            yield ""
            yield f"{title}: {'; '.join(listed)}"
    if any(step.xml for step in lacking):
        yield ""
        yield f"Edit the definition with `{edit}`; a change takes effect when the guest starts again."
    for run in diagnosis.runs:
        yield ""
        yield from _run(run)


def _worth(results: tuple[Worth, ...]) -> Iterator[str]:
    """The figure that a load is measured for, and the host's CPU."""
    shown = [worth for worth in results if worth.metric.is_primary or worth.metric.name == HOST_CPU.name]
    if not shown:
        yield "   Worth: unknown, no tuning run here measured it."
        return
    yield f"   Worth, by {shown[0].run} ({words.profiles_text(shown[0])}):"
    yield from (f"     {words.worth_text(worth)}" for worth in shown)


def _change(step: Step) -> Iterator[str]:
    if step.xml:
        yield "   Change:"
        yield indent(step.xml, "     ")
    if text := words.condition_text(step):
        yield f"   {text}"


def _run(run: TuningRun) -> Iterator[str]:
    origin = "measured here" if run.local else "committed with vmtoll, measured on another machine"
    yield f"{run.name}: {origin}, {run.started_at[:10]}, host CPU {', '.join(run.cpu_models) or 'not recorded'}."
    if run.emulated:
        yield "Its guests were emulated: its figures say nothing about KVM."
    for kind in run.kvm_hardware:
        if texts := KVM_HARDWARE.get(Hardware(kind)):
            yield texts[0]
