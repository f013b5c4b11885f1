"""From nothing to the first answer: means over blocks of the starts of a run, and against another guest in the same
block. Intervals are Student's, each for itself: the family of comparisons is of loads, and a start has none.
"""

from collections.abc import Iterable, Mapping, Sequence

from vmtoll.analysis.amounts import amount_of
from vmtoll.analysis.run import Run
from vmtoll.model.experiment import Experiment
from vmtoll.model.first_answer import PARTS, GuestStart, StartRecord
from vmtoll.model.verdict import StartFigures, WaitFigure
from vmtoll.runs.folder import STARTS

_MOST_WAITS = 5


def start_figures(run: Run) -> tuple[StartFigures, ...]:
    """One for each environment, server, way and number of guests at once, in the experiment's order; empty for a run
    without starts. Raises LoadError.
    """
    key = run.manifest.experiment.first_answer
    records = STARTS.read(run.path) if key else []
    figures = []
    for way, at_once in key.starts if key else ():
        for server in run.manifest.experiment.servers:
            group = [each for each in records if (each.way, each.at_once, each.server) == (way, at_once, server)]
            by_environment = {
                name: [each for each in group if each.environment == name] for name in run.manifest.experiment.started
            }
            against = _against(run.manifest.experiment)
            figures += [
                _figures(starts, by_environment.get(against, ()), against)
                for starts in by_environment.values()
                if starts
            ]
    return tuple(figures)


def _against(experiment: Experiment) -> str:
    """The guest that the others are compared with: the baseline, if it is one, else the first."""
    baseline = experiment.baseline_arm.environment
    return baseline if baseline in experiment.started else experiment.started[0]


def _figures(starts: Sequence[StartRecord], others: Iterable[StartRecord], against: str) -> StartFigures:
    whole = [start for start in starts if start.last_s is not None]
    one, lasts = starts[0], [_last(start) for start in whole]
    other_s = _by_block(others) if one.environment != against else {}
    seen = [guest for start in starts for guest in start.guests]
    return StartFigures(
        environment=one.environment,
        accelerator=one.accelerator,
        server=one.server,
        way=one.way,
        at_once=one.at_once,
        blocks=len(whole),
        failed=len(starts) - len(whole),
        first_s=amount_of([min(guest.answer_s or 0.0 for guest in start.guests) for start in whole]),
        all_s=amount_of([guest.answer_s or 0.0 for guest in lasts]),
        network_s=amount_of([guest.network_s for guest in lasts if guest.network_s is not None]),
        parts={
            part: amount
            for part in PARTS
            if (amount := amount_of([guest.parts[part] for guest in lasts if part in guest.parts]))
        },
        waits=_waits(lasts),
        against=against,
        more_s=amount_of([all_s - other_s[block] for block, all_s in _by_block(starts).items() if block in other_s]),
        error_s=max((guest.error_s for guest in seen), default=0.0),
        gap_s=max((guest.gap_s for guest in seen), default=0.0),
    )


def _last(start: StartRecord) -> GuestStart:
    """The guest that answered last."""
    return max(start.guests, key=lambda guest: guest.answer_s or 0.0)


def _by_block(starts: Iterable[StartRecord]) -> Mapping[int, float]:
    return {start.block: start.last_s for start in starts if start.last_s is not None}


def _waits(guests: Iterable[GuestStart]) -> tuple[WaitFigure, ...]:
    lengths: dict[str, list[float]] = {}
    for wait in (wait for guest in guests for wait in guest.waits):
        lengths.setdefault(wait.unit, []).append(wait.length_s)
    amounts = [
        WaitFigure(unit=unit, length_s=amount) for unit, values in lengths.items() if (amount := amount_of(values))
    ]
    return tuple(sorted(amounts, key=lambda wait: -wait.length_s.value)[:_MOST_WAITS])
