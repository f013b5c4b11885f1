"""Find the next attempt at a trial of a block: a pure function of its records, so that a run can be resumed."""

from collections.abc import Sequence

from vmtoll.model.finding import ACCIDENTS, Code
from vmtoll.model.trial import TrialRecord, TrialSpec

MOST_ATTEMPTS = 2
# A block that lost a machine is measured once more, whole.
MOST_ROUNDS = 2


def next_attempt(block: Sequence[TrialSpec], records: Sequence[TrialRecord]) -> tuple[TrialSpec, int] | None:
    """The next trial of a block and the number of its attempt; None when the block is done.

    `records`: those of the block, in the order in which they were appended. A trial that ended with one of
    ACCIDENTS is tried again; gate findings are not among them. After the loss of a machine the whole block is measured
    again: a second attempt among the first attempts of its siblings would compare a fresh boot with an old one.
    """
    rounds: list[list[TrialRecord]] = [[]]
    for record in records:
        rounds[-1].append(record)
        if Code.HOST_LOST in record.codes and len(rounds) < MOST_ROUNDS:
            rounds.append([])
    for spec in block:
        if _needs_attempt([record for record in rounds[-1] if record.key == spec.key]):
            return spec, 1 + sum(record.key == spec.key for record in records)
    return None


def _needs_attempt(attempts: Sequence[TrialRecord]) -> bool:
    """Return whether a trial needs another attempt after those of this round."""
    if not attempts:
        return True
    had_accident = attempts[-1].codes & ACCIDENTS and Code.HOST_LOST not in attempts[-1].codes
    return bool(had_accident) and len(attempts) < MOST_ATTEMPTS
