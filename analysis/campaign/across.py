"""From the effects of cells to that of the campaign. The cell is the sample, as the trial in its block is in a run.

A cell's effect is its mean over blocks; the campaign's is the plain mean of its cells' with Student's interval over
cells. It needs no model of the blocks within a cell: their noise is part of the spread between the cells' means.
Weights (DerSimonian and Laird 1986) would gain little where all cells run one plan, and their interval is too short
with few cells (IntHout, Ioannidis and Borm 2014). How far hosts of a kind really differ is the spread of the cells'
means less what their own standard errors explain (Hedges and Olkin 1985, section 9.3): `between_sd`. The prediction
interval is for a further cell (Higgins, Thompson and Spiegelhalter 2009, with k − 2 degrees of freedom).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.campaign.dataset import SCENARIOS
from analysis.compare import less_limited
from analysis.entry import flip, in_units
from analysis.family import Tested, judge_family
from analysis.judge import (
    EQUIVALENT,
    INVALID,
    KVM_FASTER,
    METAL_FASTER,
    NOT_DISTINGUISHABLE,
    Judgement,
    factor,
    percent,
)
from analysis.load import AA_ARM
from analysis.metrics import CLOSED, METRICS, THROUGHPUT, Metric, loop_of
from analysis.stats import ALPHA, Interval, Paired, blocks_needed, half_width, noise_floor, paired, t_quantile

MIN_CELLS = 3  # below it nothing is judged
GUEST = [*SCENARIOS, "environment", "accelerator"]
_SET_THE_PACE = "the client or the link set the pace"

Key = tuple[str, ...]


def across(cells: pd.DataFrame, margin: float) -> list[dict[str, Any]]:
    """One entry per scenario, guest and metric with a figure, JSON-serialisable; `cells`: Dataset.effects().

    `margin`: a fraction. `kind` and `text` as in a run's verdict, after Holm over the experiment's entries of a
    metric. `ratio` (guest/metal) and `effect` (overhead, or the cost ratio, as `effect_is` says), each with `_low` and
    `_high`; `cells`; `blocks` of all of them; `between_sd` of the log ratio; `prediction_low` and `prediction_high` of
    the ratio; `noise_floor` of the A/A arm, a fraction; `limited`: trials whose pace the client or the link set;
    `by_cell`: cell, blocks, limited, ratio and effect with the interval over the cell's own blocks.
    """
    sources = {_key(key): _source(rows) for key, rows in cells.groupby(GUEST)}
    return [
        entry
        for experiment in sorted(set(cells["experiment"]))
        for metric in METRICS
        for entry in _family(
            metric, cells[(cells["experiment"] == experiment) & (cells["metric"] == metric.name)], sources, margin
        )
    ]


def _key(key: Any) -> Key:
    return tuple(map(str, key))


def _source(rows: pd.DataFrame) -> str:
    """Whose figures count, in all cells alike: the twin's where the client or the link limited the tool more."""
    if loop_of(str(rows["offered_load"].iloc[0])) != CLOSED:
        return "tool"
    found = {}
    for source in ("tool", "twin"):
        own = rows[(rows["metric"] == THROUGHPUT.name) & (rows["source"] == source)]
        found[source] = int(own["blocks"].sum()), int(own["limited_metal"].sum() + own["limited_guest"].sum())
    return less_limited(found["tool"], found["twin"])


def _family(metric: Metric, rows: pd.DataFrame, sources: Mapping[Key, str], margin: float) -> list[dict[str, Any]]:
    """One metric of an experiment: every scenario with every guest."""
    groups: dict[Key, pd.DataFrame] = {}
    for key, own in ((_key(key), own) for key, own in rows.groupby(GUEST)):
        source = sources[key] if sources[key] in metric.columns else next(iter(metric.columns))
        if key[GUEST.index("environment")] != AA_ARM and (own["source"] == source).any():
            groups[key] = own[own["source"] == source]
    effects = {key: paired(own["mean"].to_numpy()) for key, own in groups.items()}
    refused = {key: _refused(metric, own) for key, own in groups.items()}
    testable = [effect if effect.n >= MIN_CELLS and not refused[key] else None for key, effect in effects.items()]
    tests = dict(zip(groups, judge_family(testable, math.log1p(margin)), strict=True))
    entries = []
    for key, own in groups.items():
        same = _same(rows, own)
        judgement = _judgement(metric, effects[key], tests[key], same, own, margin)
        floor = noise_floor(same)
        entries.append(
            dict(zip(GUEST, key, strict=True))
            | {"metric": metric.name, "label": metric.label, "source": str(own["source"].iloc[0])}
            | {"effect_is": "overhead" if metric.higher_is_better else "cost ratio"}
            | {"kind": judgement.kind, "bound": judgement.bound or None}
            | {"text": judgement.text("the emulated guest" if key[-1] == "tcg" else "kvm")}
            | {"noise_floor": None if floor is None else math.expm1(floor)}
            | _figures(metric, effects[key], own)
        )
    return entries


def _same(rows: pd.DataFrame, own: pd.DataFrame) -> Paired | None:
    """The A/A arms of the cells for the scenario and source of `own`."""
    alike = (rows[[*SCENARIOS, "source"]] == own[[*SCENARIOS, "source"]].iloc[0]).all(axis=1)
    arms = rows[alike & (rows["environment"] == AA_ARM)]
    return None if arms.empty else paired(arms["mean"].to_numpy())


def _limited(own: pd.DataFrame) -> tuple[float, float]:
    """The share of trials whose pace the client or the link set: on metal, in the guest."""
    blocks = float(own["blocks"].sum())
    return float(own["limited_metal"].sum()) / blocks, float(own["limited_guest"].sum()) / blocks


def _refused(metric: Metric, own: pd.DataFrame) -> str:
    """Why these figures decide nothing; empty when they may."""
    limited = _limited(own)
    if metric.open_only:
        return "the client or the link, not the server, made the tail" if max(limited) > 0.5 else ""
    return f"{_SET_THE_PACE} on both sides" if min(limited) > 0.5 else ""


def _judgement(
    metric: Metric, effect: Paired, tested: Tested | None, same: Paired | None, own: pd.DataFrame, margin: float
) -> Judgement:
    """As analysis.judge does for blocks: what survives Holm and the noise floor counts."""
    limit, floor, limited = math.log1p(margin), noise_floor(same), _limited(own)
    if reason := _refused(metric, own):
        return Judgement(INVALID, reason)
    if tested is None:
        return Judgement(NOT_DISTINGUISHABLE, f"{effect.n} of at least {MIN_CELLS} cells")
    if tested.equivalence.holds and (floor is None or floor <= limit):
        if any(limited):
            return Judgement(INVALID, f"{_SET_THE_PACE}: no evidence of equality")
        return Judgement(EQUIVALENT, percent(margin))
    if tested.difference.holds and (floor is None or abs(effect.mean) > floor):
        return _faster(metric, effect.mean, limited)
    alphas = (ALPHA / tested.difference.step, ALPHA / tested.equivalence.step)
    more = blocks_needed(effect, limit, same, alphas)
    words = "more cells alone will not settle it" if more is None else f"{more} more cell{'s' * (more > 1)} needed"
    return Judgement(NOT_DISTINGUISHABLE, words)


def _faster(metric: Metric, mean: float, limited: tuple[float, float]) -> Judgement:
    fast, slow = limited if mean > 0 else limited[::-1]
    bound = "at least" if fast else "at most" if slow else ""
    if metric.open_only:
        bound = ""
    elif slow > 0.5:
        return Judgement(INVALID, f"{_SET_THE_PACE} of the slower side")
    return Judgement(METAL_FASTER if mean > 0 else KVM_FASTER, factor(abs(mean)), bound)


def _figures(metric: Metric, effect: Paired, own: pd.DataFrame) -> dict[str, Any]:
    sign = -1.0 if metric.higher_is_better else 1.0
    between = _between_sd(effect, own)
    wide = _prediction(effect, between)
    low, high = (None, None) if wide is None else sorted(math.exp(sign * end) for end in (wide.low, wide.high))
    return {
        "cells": effect.n,
        "blocks": int(own["blocks"].sum()),
        "limited": int(own["limited_metal"].sum() + own["limited_guest"].sum()),
        **in_units("", sign * effect.mean, flip(effect.t, sign), metric.higher_is_better),
        "between_sd": between,
        "prediction_low": low,
        "prediction_high": high,
        "by_cell": [_cell(metric, row, sign) for row in own.to_dict("records")],
    }


def _between_sd(effect: Paired, own: pd.DataFrame) -> float | None:
    """What is left of the spread between cells once the standard errors of their means are taken off; log ratio."""
    errors = own["sd"] ** 2 / own["blocks"]
    if effect.sd is None or errors.isna().any():
        return None
    return math.sqrt(max(0.0, effect.sd**2 - float(errors.mean())))


def _prediction(effect: Paired, between_sd: float | None) -> Interval | None:
    """Where the true effect of one further cell lies, in 19 of 20 campaigns; from three cells on."""
    if effect.sd is None or between_sd is None or effect.n < 3:
        return None
    half = t_quantile(1 - ALPHA / 2, effect.n - 2) * math.sqrt(between_sd**2 + effect.sd**2 / effect.n)
    return Interval(effect.mean - half, effect.mean + half)


def _cell(metric: Metric, row: Mapping[Any, Any], sign: float) -> dict[str, Any]:
    mean, blocks, interval = float(row["mean"]), int(row["blocks"]), None
    if blocks > 1:
        half = half_width(float(row["sd"]), blocks)
        interval = Interval(mean - half, mean + half)
    limited = int(row["limited_metal"] + row["limited_guest"])
    return {"cell": str(row["cell"]), "blocks": blocks, "limited": limited} | in_units(
        "", sign * mean, flip(interval, sign), metric.higher_is_better
    )
