"""The Universal Scalability Law of a run: throughput against users, and against the CPUs of its guests."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from vmtoll.analysis.run import Run
from vmtoll.capacity.resources import size_of
from vmtoll.model.finding import Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import LoadKind
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.trial import Accelerator, TrialRecord
from vmtoll.statistics.student import Interval, half_width
from vmtoll.statistics.thresholds import MIN_BLOCKS

MIN_LEVELS = 6  # three parameters, and as many levels again to contradict them

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Usl:
    """A fitted law."""

    gamma: float
    alpha: float
    beta: float
    # standard errors of gamma, alpha, beta (null for one that lies on its bound)
    errors: tuple[float | None, float | None, float | None]
    residual: float  # residual standard error, in the unit of the throughput, or of its logarithm
    largest: float  # the highest level measured
    # the level beyond which throughput falls, √((1 − α)/β) or the first one, None when it never does (β = 0)
    peak: float | None
    # the throughput that contention alone allows, γ/α (Amdahl's asymptote), None without contention
    limit: float | None

    def throughput(self, n: float) -> float:
        """Predicted throughput at level n, in the unit of the data."""
        return float(_law(np.array([n]), self.gamma, self.alpha, self.beta)[0])

    @property
    def peak_is_measured(self) -> bool:
        """Return whether the peak lies within the measured levels; if not, it is an extrapolation."""
        return self.peak is not None and self.peak <= self.largest


def fit(levels: Sequence[float] | Floats, throughput: Sequence[float] | Floats, *, of_logs: bool = False) -> Usl:
    """Fit by least squares with 0 ≤ α, β ≤ 1 over (level, throughput) pairs; a level may occur more than once.

    `of_logs`: fit the logarithm of the throughput, for noise in proportion to it; without it the fit is that of
    Gunther's published figures, in which the highest throughputs weigh most.
    Raises ValueError with fewer than six different levels, or with a level below one or a throughput of zero.
    """
    n, x = np.asarray(levels, dtype=float), np.asarray(throughput, dtype=float)
    different_levels = len(np.unique(n))
    if different_levels < MIN_LEVELS:
        raise ValueError(f"{different_levels} levels; the Universal Scalability Law is fitted to at least {MIN_LEVELS}")
    if n.shape != x.shape or not (n >= 1).all() or not (x > 0).all():
        raise ValueError("expected as many levels from 1 up as throughputs above 0")
    first = float((x / n).max())

    def residuals(p: Floats) -> Floats:
        fitted = _law(n, *p)
        differences: Floats = np.log(fitted / x) if of_logs else fitted - x
        return differences

    with np.errstate(invalid="ignore"):  # the solver takes back a step to a value that is not finite
        solution = least_squares(
            residuals, [first, 0.01, 1e-4], bounds=([1e-9 * first, 0, 0], [np.inf, 1, 1]),
            x_scale=[first, 1e-2, 1e-4], xtol=1e-14, ftol=1e-14, gtol=1e-14,
        )  # fmt: skip
    gamma, alpha, beta = (
        float(p) if free else round(float(p)) for p, free in zip(solution.x, _free(solution), strict=True)
    )
    variance = 2 * float(solution.cost) / max(n.size - 3, 1)
    return Usl(
        gamma, alpha, beta, _errors(solution, variance), math.sqrt(variance), float(n.max()),
        peak=max(1.0, math.sqrt((1 - alpha) / beta)) if beta > 0 else None,
        limit=gamma / alpha if alpha > 0 else None,
    )  # fmt: skip


def jackknife_intervals(levels: Floats, throughput: Floats, blocks: Floats) -> tuple[Interval | None, Interval | None]:
    """95% intervals of α and β by the fit of logarithms; each array has one entry per trial. Method: the jackknife
    (Tukey 1958) with Student's quantile, leaving out one block at a time, because its trials share its drift.

    None below three blocks, if leaving out a block leaves fewer than six levels, and for a parameter on its bound.
    """
    full_fit, block_ids = fit(levels, throughput, of_logs=True), np.unique(blocks)
    try:
        refits = [fit(levels[blocks != block], throughput[blocks != block], of_logs=True) for block in block_ids]
    except ValueError:
        refits = []
    if len(refits) < MIN_BLOCKS:
        return None, None
    _, contention, coherency = full_fit.errors
    return (
        None if contention is None else _jackknife(full_fit.alpha, [refit.alpha for refit in refits]),
        None if coherency is None else _jackknife(full_fit.beta, [refit.beta for refit in refits]),
    )


def _jackknife(estimate: float, refitted: Sequence[float]) -> Interval:
    n = len(refitted)
    spread = (n - 1) * float(np.std(refitted, ddof=1))  # of the pseudo-values n·whole − (n − 1)·part
    half = half_width(spread, n)
    return Interval(max(estimate - half, 0.0), min(estimate + half, 1.0))


def _law(n: Floats, gamma: float, alpha: float, beta: float) -> Floats:
    values: Floats = gamma * n / (1 + alpha * (n - 1) + beta * n * (n - 1))
    return values


def _free(solution: object) -> list[bool]:
    """For each of γ, α and β, whether it lies between its bounds; γ always does."""
    mask = solution.active_mask  # type: ignore[attr-defined]
    return [True, bool(mask[1] == 0), bool(mask[2] == 0)]


def _errors(solution: object, variance: float) -> tuple[float | None, float | None, float | None]:
    """Standard errors from the Jacobian of the free parameters; None for one on its bound, which is not estimated."""
    free = _free(solution)
    columns = solution.jac[:, free]  # type: ignore[attr-defined]
    squares = iter(np.diag(np.linalg.pinv(columns.T @ columns)) * variance)
    gamma, alpha, beta = (float(np.sqrt(next(squares))) if is_free else None for is_free in free)
    return gamma, alpha, beta


class LevelKind(StrEnum):
    """Kind of the levels of a scaling: users of one workload, or CPUs of guests with different numbers of them."""

    USERS = "users"
    CPUS = "cpus"


GUESTS = "guests"  # the environment of a scaling over CPUs


@dataclass(frozen=True)
class ScalingPoint:
    """One trial."""

    block: int
    level: float  # users, or CPUs
    throughput_rps: float


@dataclass(frozen=True)
class Scaling:
    """Six levels or more of one workload on one server."""

    over: LevelKind
    server: str
    environment: str
    workload: str
    users: float | None  # their number in a scaling over CPUs
    tool: str
    accelerator: Accelerator  # TCG if any of the guests was emulated
    hardware: Hardware  # EMULATED if that below any of them was
    law: Usl  # fitted to them, with the 95% intervals of its α and β over blocks (see `jackknife_intervals`)
    alpha_interval: Interval | None
    beta_interval: Interval | None
    points: tuple[ScalingPoint, ...]  # the trials of all levels without a client-limited or link-limited trial


_Key = tuple[LevelKind, str, str, str, float | None]  # the first five fields of a Scaling


def scalings(run: Run) -> list[Scaling]:
    """Every scaling of a run: those over users first, then by server, the baseline first."""
    cpus = {guest: size_of(run, guest.environment).cpus for guest in run.guests}
    groups: dict[_Key, list[tuple[TrialRecord, float]]] = {}
    for trial in filter(_is_level, run.trials):
        server, workload, users = trial.scenario.server, trial.scenario.workload, trial.scenario.load.value
        groups.setdefault((LevelKind.USERS, server, trial.arm.environment, workload, None), []).append((trial, users))
        if count := cpus.get(trial.arm):
            groups.setdefault((LevelKind.CPUS, server, GUESTS, workload, users), []).append((trial, count))
    unlimited = {key: _unlimited(trials) for key, trials in groups.items()}
    fittable = {key: trials for key, trials in unlimited.items() if len({level for _, level in trials}) >= MIN_LEVELS}
    fitted = [_scaling(run, key, trials) for key, trials in fittable.items()]
    first = run.baseline.environment
    return sorted(fitted, key=lambda s: (s.over != LevelKind.USERS, s.server, s.environment != first, s.environment))


def _is_level(trial: TrialRecord) -> bool:
    load, rps = trial.scenario.load, THROUGHPUT.value(trial, Role.PRIMARY) or 0
    is_used = trial.validity is not Validity.INVALID and not trial.arm.is_control
    return is_used and load.kind is LoadKind.CLOSED and load.is_single_machine and rps > 0


def _unlimited(trials: list[tuple[TrialRecord, float]]) -> list[tuple[TrialRecord, float]]:
    """Leave out every level with a limited trial. Only the slow trials of such a level would remain, and they would
    bend the law where only the client was at its limit.
    """
    limited = {level for trial, level in trials if THROUGHPUT.is_limited(trial, Role.PRIMARY)}
    return [(trial, level) for trial, level in trials if level not in limited]


def _scaling(run: Run, key: _Key, trials: list[tuple[TrialRecord, float]]) -> Scaling:
    points = tuple(ScalingPoint(t.block, level, THROUGHPUT.value(t, Role.PRIMARY) or 0) for t, level in trials)
    blocks, levels, throughput = (np.array(values, dtype=float) for values in zip(*map(astuple, points), strict=True))
    alpha, beta = jackknife_intervals(levels, throughput, blocks)
    accelerators, hardware = {t.accelerator for t, _ in trials}, {run.hardware(t.arm) for t, _ in trials}
    return Scaling(
        *key, tool=run.tool(trials[0][0].scenario),
        accelerator=Accelerator.TCG if Accelerator.TCG in accelerators else trials[0][0].accelerator,
        hardware=Hardware.EMULATED if Hardware.EMULATED in hardware else run.hardware(trials[0][0].arm),
        law=fit(levels, throughput, of_logs=True), alpha_interval=alpha, beta_interval=beta, points=points,
    )  # fmt: skip
