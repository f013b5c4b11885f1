"""Progress: a live line on a terminal, plain lines elsewhere."""

import math
import sys
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from vmtoll.model.event import (
    ComparingMachines,
    Connecting,
    Event,
    LookEnded,
    MarginHidden,
    NotPaused,
    Phase,
    RunEnded,
    Skipped,
    TrialEnded,
    TrialStep,
)
from vmtoll.model.trial import TrialRecord
from vmtoll.model.until import Compared, Look, Stop
from vmtoll.shell import say


def time_left(seconds: float | None) -> str:
    """Return "4 min left", "40 s left", or nothing when it is not known."""
    if seconds is None:
        return ""
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


@dataclass(frozen=True)
class Line:
    """What a person reads of an event. `quiet`: a step within a trial, for the live line only."""

    stage: str
    text: str
    done: int = 0
    total: int = 0
    left_s: float | None = None
    quiet: bool = False

    @property
    def plain(self) -> str:
        """For a log: `trial 2 of 6: …, 40 s left`."""
        count = f" {self.done} of {self.total}" if self.stage == "trial" else ""
        left = time_left(self.left_s)
        return f"{self.stage}{count}: {self.text}{', ' + left if left else ''}"


_BEFORE: dict[type[Event], tuple[str, str]] = {
    Connecting: ("connect", "reaching the machines"),
    ComparingMachines: ("facts", "comparing the machines"),
}


def line_of(event: Event) -> Line:
    """The event in words."""
    match event:
        case Skipped(name, why):
            return Line("skipped", f"{name}: {why}")
        case MarginHidden() | NotPaused():
            return Line("note", _note(event))
        case Connecting(trials, total_s) | ComparingMachines(trials, total_s):
            stage, text = _BEFORE[type(event)]
            return Line(stage, text, 0, trials, total_s)
        case TrialStep():
            return Line("measure", _step(event), event.number, event.trials, event.left_s, quiet=True)
        case TrialEnded(record, number, trials, left_s):
            return Line("trial", _outcome(record), number, trials, left_s)
        case LookEnded() | RunEnded():
            return _end(event)


def _note(event: MarginHidden | NotPaused) -> str:
    """What a reader of the results should know."""
    if isinstance(event, NotPaused):
        return f"{event.machine} idles beside the trials and cannot be paused: {event.why}"
    return (
        f"in loads of {event.duration_s:g} s others may take {event.hidden_pct:.1f}% of a CPU without a finding, more "
        f"than the margin of {event.margin_pct:g}%; raise duration_s or margin_pct"
    )


def _end(event: LookEnded | RunEnded) -> Line:
    """Of a look, or of the run."""
    if isinstance(event, LookEnded):
        return Line("look", _look(event.look, event.next_blocks, event.stopped))
    return Line("done", str(event.run_dir), event.trials, event.trials, 0.0)


MOST_OPEN = 5  # comparisons that a line names
_STOPPED = {
    Stop.DECIDED: "more blocks would decide no other one",
    Stop.NARROW: "all others are decided or known well enough",
    Stop.TIME: "the time is over",
}


def _look(look: Look, next_blocks: int | None, stopped: Stop | None) -> str:
    """`after 6 blocks 3 of 8 comparisons are open (tail, nginx, sweep, kvm-default ±4.1%; …); next look after 10`."""
    left = [_open(compared) for compared in sorted(look.open, key=lambda c: -(c.half_width_pct or math.inf))]
    more = f"; {len(left) - MOST_OPEN} more" if len(left) > MOST_OPEN else ""
    named = f" ({'; '.join(left[:MOST_OPEN])}{more})" if left else ""
    text = f"after {look.blocks} blocks {len(left)} of {look.comparisons} comparisons are open{named}"
    return f"{text}; {_STOPPED[stopped]}" if stopped else f"{text}; next look after {next_blocks} blocks"


def _open(compared: Compared) -> str:
    """`tail of nginx, sweep, on kvm-default ±4.1%`, or the words of a claim."""
    width = "" if compared.half_width_pct is None else f" ±{compared.half_width_pct:.3g}%"
    if compared.claim:
        return f"“{compared.claim}”{width}"
    scenario = compared.scenarios[0]
    of = f"{scenario.server}, {scenario.workload} {scenario.load.value:g}"
    return f"{compared.metric} of {of}, on {compared.arms[-1]}{width}"


def _step(event: TrialStep) -> str:
    """What a trial is at: `nginx on kvm-default: siege measures`."""
    waiting = f"waiting up to {event.limit_s or 0:g} s for it"
    texts = {
        Phase.RECOVERING: f"{event.machine} is gone ({event.detail}); bringing it back, or {waiting}",
        Phase.RECOVERED: f"{event.machine} is back",
        Phase.REBOOTING: f"{event.machine} boots again",
        Phase.REBOOTED: f"{event.machine} has booted",
        Phase.STARTING: "starting",
        Phase.CAPACITY: f"measuring the capacity with {event.tool}",
        Phase.PREPARING: f"{event.tool} warms up",
        Phase.NEIGHBOUR: f"{event.tool} sends {event.rate_rps or 0:.0f} requests per second to the neighbour",
        Phase.MEASURING: f"{event.tool} measures",
        Phase.DELIVERING: "delivering the accepted messages",
        Phase.COUNTING: "counting the messages",
    }
    text = texts[event.phase]
    if event.phase in {Phase.RECOVERING, Phase.RECOVERED, Phase.REBOOTING, Phase.REBOOTED}:
        return text
    return f"{event.spec.scenario.server} on {event.spec.arm}: {text}"


def _outcome(record: TrialRecord) -> str:
    """`nginx on kvm-default: suspect (steal)`; of an accident also its message."""
    codes = ", ".join(dict.fromkeys(finding.code.value for finding in record.findings))
    message = next((f": {finding.detail}" for finding in record.accidents if finding.detail), "")
    findings = f" ({codes})" if codes else ""
    return f"{record.scenario.server} on {record.arm}: {record.validity.value}{findings}{message}"


class Progress:
    """The listener of a run that shows its events."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.fields[stage]}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None, stage="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        line = line_of(event)
        if self._bar:
            text = f"{line.text}  {time_left(line.left_s)}"
            self._bar.update(
                self._task, completed=line.done, total=line.total or None, description=text, stage=line.stage
            )
        elif not line.quiet:
            say(line.plain)
