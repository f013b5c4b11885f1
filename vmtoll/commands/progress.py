"""Show progress: one live display on a terminal, else a line per block; errors and waits at once, findings last."""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from vmtoll.model.event import (
    BlockEnded,
    ComparingMachines,
    Connecting,
    Event,
    LookEnded,
    MachineStep,
    Phase,
    RunEnded,
    ServiceCompared,
    TrialEnded,
    TrialStep,
)
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.message import message, plural
from vmtoll.model.metric import TAIL, THROUGHPUT
from vmtoll.model.trial import Scenario, TrialRecord
from vmtoll.model.until import Look, LookComparison, Stop
from vmtoll.shell import say


def time_left(seconds: float | None) -> str:
    """Return "4 min left", "40 s left", or nothing if the time is unknown."""
    if seconds is None:
        return ""
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


# Phase that begins a trial which is compared with nothing → how its line in a log begins.
_OF_THEIR_OWN = {Phase.CAPACITY: "capacity", Phase.EXPLAINING: "exits"}
MOST_BLOCKS = 12  # with a line in a log, at most: a run fits one screen


def lines_of(event: Event) -> list[str]:
    """The log lines of an event. None for a trial without `accidents`, for steps of a trial (except the first attempt
    to measure a capacity, or to explain exits), and for some blocks if there are more than MOST_BLOCKS.
    """
    match event:
        case BlockEnded(block, blocks) if block < blocks and block % math.ceil(blocks / MOST_BLOCKS):
            return []
        case TrialStep():
            is_first = event.phase in _OF_THEIR_OWN and event.attempt == 1
            return [f"{_OF_THEIR_OWN[event.phase]}: {_step(event)}"] if is_first else []
        case TrialEnded(record, number, trials, _, again):
            return [f"trial {number} of {trials}: {_failure(record, again=again)}"] if record.accidents else []
        case RunEnded(run_dir, records):
            return [*summary(records), f"done: {run_dir}"]
    return [_line_of(event)]


def _line_of(event: Event) -> str:
    """The log line of an event that always has one."""
    match event:
        case ServiceCompared():
            return f"service: {_compared(event)}"
        case MachineStep():
            return f"machine: {message(event.absence.text, vars(event))}"
        case BlockEnded(block, blocks, validity, left_s):
            left = f", {time_left(left_s)}" if block < blocks else ""
            return f"block {block} of {blocks}: {_counts(validity)}{left}"
        case LookEnded(look, next_blocks, stopped):
            return f"look: {_look(look, next_blocks, stopped)}"
        case TrialStep() | TrialEnded() | RunEnded():
            raise AssertionError(event)
    return message(event.line, vars(event) | {"left": time_left(getattr(event, "total_s", None))})


MOST_URLS = 5  # named in a line


def _some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - MOST_URLS} more" if len(names) > MOST_URLS else ""
    return ", ".join(names[:MOST_URLS]) + more


def _compared(event: ServiceCompared) -> str:
    """`12 URLs answer alike on before, after; dynamic, so only their status counts: /now (found by asking twice)`."""
    text = f"{plural(event.urls, 'URL')} answered, with the same status, length and hash"
    text += f" on {', '.join(event.arms)}" if len(event.arms) > 1 else " twice"
    kinds = ((event.found, "asked twice, the bodies differed"), (event.declared, "declared"))
    named = [f"{_some(paths)} ({why})" for paths, why in kinds if paths]
    return f"{text}; dynamic, so only the status counts: {'; '.join(named)}" if named else text


def _counts(validity: Mapping[Validity, int]) -> str:
    """`9 valid, 1 suspect, 0 invalid`."""
    return ", ".join(f"{validity.get(each, 0)} {each.value}" for each in Validity)


MOST_ENVIRONMENTS = 3  # named in a line of the summary
LONGEST_TEXT = 200  # characters of a finding in the summary: a program's message may be long


def summary(records: Sequence[TrialRecord]) -> Iterator[str]:
    """Yield the number of trials by validity, then a line for each finding code, the most frequent first."""
    trials = plural(len(records), "trial")
    durations = [(record.loaded_s, record.fixed_cost_s) for record in records if record.loaded_s is not None]
    loaded_s, fixed_s = (sum(seconds) for seconds in zip(*durations, strict=True)) if durations else (0.0, 0.0)
    under_load = f"; {loaded_s / (loaded_s + fixed_s):.0%} of their time under load" if loaded_s else ""
    yield f"{trials}: {_counts(Counter(record.validity for record in records))}{under_load}"
    records_by_code: dict[Code, list[TrialRecord]] = {}
    for record in records:
        for code in record.codes:
            records_by_code.setdefault(code, []).append(record)
    for code, flagged in sorted(records_by_code.items(), key=lambda item: (-len(item[1]), item[0])):
        environments = _environments(flagged)
        yield f"finding: {code.value}: {len(flagged)} of {trials} ({environments}); worst {_worst(code, flagged)}"


def _environments(records: Sequence[TrialRecord]) -> str:
    """`kvm-default 4, metal 2`."""
    counted = Counter(record.arm.environment for record in records).most_common()
    named = [f"{environment} {count}" for environment, count in counted[:MOST_ENVIRONMENTS]]
    more = len(counted) - MOST_ENVIRONMENTS
    return ", ".join([*named, *([f"{more} more environments"] if more > 0 else [])])


def _worst(code: Code, records: Sequence[TrialRecord]) -> str:
    """`on kvm-default: metal: background processes used 2.6% CPU (limit 1%)`: the finding farthest from its limit."""
    candidates = [(record, finding) for record in records for finding in record.findings if finding.code is code]
    record, finding = max(candidates, key=lambda pair: _distance(pair[1]))
    text = " ".join(finding.text.split())
    return f"on {record.arm.environment}: {text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + '…'}"


def _distance(finding: Finding) -> float:
    """The distance of a figure from its limit, in either direction: some limits are minimums. −1 without a figure."""
    return -1.0 if finding.value is None else abs(finding.value - (finding.limit or 0.0))


MOST_OPEN = 5  # comparisons named in a line
MOST_RATIOS = 3
FEWEST_REQUESTS = 1000  # for a p99 to be shown


def _look(look: Look, next_blocks: int | None, stopped: Stop | None) -> str:
    """`after 6 blocks 3 of 8 comparisons are open (tail of nginx, sweep 0.5, on kvm-default ±4.1%; …); next look after
    10 blocks`.
    """
    open_texts = [
        _comparison_text(comparison) for comparison in sorted(look.open, key=lambda c: -(c.half_width_pct or math.inf))
    ]
    more = f"; {len(open_texts) - MOST_OPEN} more" if len(open_texts) > MOST_OPEN else ""
    named = f" ({'; '.join(open_texts[:MOST_OPEN])}{more})" if open_texts else ""
    text = f"after {look.blocks} blocks {len(open_texts)} of {look.comparisons} comparisons are open{named}"
    return f"{text}; {message(stopped.text, {})}" if stopped else f"{text}; next look after {next_blocks} blocks"


def _comparison_text(comparison: LookComparison) -> str:
    """`tail of nginx, sweep 0.5, on kvm-default ±4.1%`, or the words of a claim."""
    width = "" if comparison.half_width_pct is None else f" ±{comparison.half_width_pct:.3g}%"
    if comparison.claim:
        return f"“{comparison.claim}”{width}"
    scenario = comparison.scenarios[0]
    scenario_text = f"{scenario.server}, {scenario.workload} {scenario.load.value:g}"
    return f"{comparison.metric} of {scenario_text}, on {comparison.arms[-1]}{width}"


def _step(event: TrialStep) -> str:
    """The current step of a trial: `nginx on kvm-default: siege measures`."""
    return f"{event.spec.scenario.server} on {event.spec.arm}: {message(event.phase.text, vars(event))}"


def _failure(record: TrialRecord, *, again: bool) -> str:
    """`nginx on kvm-default: invalid (tool-failed): siege: …; vmtoll measures the trial again`."""
    codes = ", ".join(dict.fromkeys(finding.code.value for finding in record.findings))
    message = next((f": {finding.detail}" for finding in record.accidents if finding.detail), "")
    repeated = "block" if Code.HOST_LOST in record.codes else "trial"
    retry = f"; vmtoll measures the {repeated} again" if again else ""
    return f"{record.scenario.server} on {record.arm}: {record.validity.value} ({codes}){message}{retry}"


class Ratios:
    """Ratios to the baseline so far, untested, in the primary metric of each load: geometric means over the blocks
    whose last attempts are not invalid on either side.
    """

    def __init__(self, baseline: str) -> None:
        self._baseline = baseline
        self._figures: dict[Scenario, dict[str, dict[int, float]]] = {}
        self._ratios: dict[tuple[Scenario, str], float] = {}

    def add(self, record: TrialRecord) -> None:
        """Add an attempt. Skips what only the report shows: controls, spread loads, and percentiles of few requests."""
        scenario, environment = record.scenario, record.arm.environment
        if record.arm.is_control or not scenario.load.is_single_machine:
            return
        sides = self._figures.setdefault(scenario, {})
        figures = sides.setdefault(environment, {})
        figures.pop(record.block, None)
        if record.validity is not Validity.INVALID and (figure := _figure(record)):
            figures[record.block] = figure
        baseline_figures = sides.get(self._baseline, {})
        for compared in [name for name in sides if environment in (name, self._baseline) and name != self._baseline]:
            logs = [
                math.log(sides[compared][block] / baseline_figures[block])
                for block in baseline_figures.keys() & sides[compared].keys()
            ]
            self._ratios.pop((scenario, compared), None)
            if logs:
                self._ratios[scenario, compared] = math.exp(fmean(logs))

    def __str__(self) -> str:
        """`so far, untested: nginx, site-rate at 300/s, on kvm-default: p99 1.8 × metal`; the first few."""
        ratios = sorted(self._ratios.items(), key=lambda item: (item[0][0].sort_key, item[0][1]))
        texts = [
            f"{scenario.server}, {scenario.workload} {_load(scenario.load)}, on {environment}: "
            f"{'p99' if scenario.load.is_open else 'throughput'} {_two_digits(ratio)} × {self._baseline}"
            for (scenario, environment), ratio in ratios
        ]
        more = f"; {len(texts) - MOST_RATIOS} more" if len(texts) > MOST_RATIOS else ""
        return f"so far, untested: {'; '.join(texts[:MOST_RATIOS])}{more}" if texts else ""


def _figure(record: TrialRecord) -> float | None:
    metric, measurement = TAIL if record.scenario.load.is_open else THROUGHPUT, record.primary
    if measurement is None or (metric is TAIL and (measurement.requests or 0) < FEWEST_REQUESTS):
        return None
    return metric.value(record, Role.PRIMARY)


def _load(load: Load) -> str:
    texts = {
        LoadKind.CLOSED: f"with {load.value:g} users",
        LoadKind.RATE: f"at {load.value:g}/s",
        LoadKind.SHARE: f"at {load.value:.0%}",
    }
    return texts.get(load.kind, str(load.kind))


def _two_digits(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


class Display:
    """The live display of a run: a bar over its trials, the current step, and the results so far."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("trials"),
            TextColumn("{task.fields[left]}", markup=False),
        )
        self._bar = Bar(*columns, auto_refresh=False)
        self._task = self._bar.add_task("connect", total=None, left="")
        # Set here: another thread draws them.
        self._step_text = self._look_text = self._counts_text = self._ratios_text = ""
        self._validity: dict[tuple[int, int], Validity] = {}
        self._ratios = Ratios("")
        # A refresh a second: the display shares the machine with the load generator.
        self.live = Live(console=console, get_renderable=self.__rich__, refresh_per_second=1, transient=True)

    def show(self, event: Event) -> None:
        """Process an event; the next refresh shows it."""
        match event:
            case Connecting() | ComparingMachines():
                stage, _, text = event.line.partition(": ")
                self._step_text = text.removesuffix(", {left}")
                self._bar.update(self._task, description=stage, total=event.trials, left=time_left(event.total_s))
                if isinstance(event, Connecting):
                    self._ratios = Ratios(event.baseline)
            case MachineStep():
                self._step_text = message(event.absence.text, vars(event))
            case TrialStep():
                self._step_text, done = _step(event), event.number - 1
                block = f"block {event.spec.block} of {event.blocks}"
                left = time_left(event.left_s)
                self._bar.update(self._task, description=block, completed=done, total=event.trials, left=left)
            case TrialEnded(record, number, trials, left_s):
                self._validity[record.key] = record.validity
                self._ratios.add(record)
                self._counts_text = _counts(Counter(self._validity.values()))
                self._ratios_text = str(self._ratios)
                self._bar.update(self._task, completed=number, total=trials, left=time_left(left_s))
            case LookEnded(look):
                self._look_text = (
                    f"; {len(look.open)} of {look.comparisons} comparisons open after {look.blocks} blocks"
                )
            case _:
                pass

    def __rich__(self) -> Group:
        lines = [
            self._step_text,
            f"{self._counts_text}{self._look_text}" if self._counts_text else "",
            *filter(None, [self._ratios_text]),
        ]
        return Group(self._bar, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


class Progress:
    """Listener that shows the events of a run: a live display on a terminal (`console`, or stderr), else lines."""

    # The live display shows these events itself.
    _LOG_ONLY = (Connecting, ComparingMachines, BlockEnded)

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        is_live = (console or sys.stderr.isatty()) and not self._console.is_dumb_terminal
        self.display = Display(self._console) if is_live else None

    def __enter__(self) -> Self:
        if self.display:
            self.display.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.display:
            self.display.live.stop()

    def __call__(self, event: Event) -> None:
        if self.display is None:
            for line in lines_of(event):
                say(line)
            return
        self.display.show(event)
        if not isinstance(event, self._LOG_ONLY):
            for line in lines_of(event):
                self._console.print(f"vmtoll: {line}", markup=False, highlight=False, soft_wrap=True)
