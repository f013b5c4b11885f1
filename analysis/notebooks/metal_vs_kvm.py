# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Against the baseline
#
# What each [environment] costs against the [baseline] in requests per second, in latency and in CPU per
# request, and the figures behind it.
#
# [environment]: ../../docs/glossary.md#term-environment
# [baseline]: ../../docs/glossary.md#term-baseline

# %%
import pandas as pd

from vmtoll.analysis.equality import FactStatus, equality
from vmtoll.analysis.verdict import analyse
from vmtoll.model.verdict_columns import effect_rows, verdict_rows
from vmtoll.report.notebook import charts, open_run, paragraphs, table
from vmtoll.report.words import (
    METRIC_LABELS,
    estimate_text,
    p_value,
    scenario_labels,
    sentence,
    sides_of,
    verdict_text,
)

# %% tags=["parameters"]
RUN = "../../results/demo"  # a run's folder, or an experiment's: then its last run

# %%
run = open_run(RUN)
analysis = analyse(run)
paragraphs([sentence(analysis)])

# %% [markdown]
# ## Verdicts
#
# Each row is one [scenario] and figure. The [verdict] is faster, slower, [equivalent]
# or [undecided], or nothing is judged. The ratio stands with the [95% interval] over
# [blocks], for all values that the findings of [suspect] trials allow. "At least" is a
# [bound]. The last column is the p-value after [Holm's correction].
#
# [scenario]: ../../docs/glossary.md#term-scenario
# [verdict]: ../../docs/glossary.md#term-verdict
# [equivalent]: ../../docs/glossary.md#term-equivalent
# [undecided]: ../../docs/glossary.md#term-undecided
# [suspect]: ../../docs/glossary.md#term-suspect
# [95% interval]: ../../docs/glossary.md#term-interval
# [blocks]: ../../docs/glossary.md#term-block
# [bound]: ../../docs/glossary.md#term-bound
# [Holm's correction]: ../../docs/glossary.md#term-holm

# %%
labels, sides = scenario_labels(run), sides_of(analysis.comparisons)
verdicts = pd.DataFrame(
    {
        "scenario": labels[comparison.scenario],
        "environment": comparison.arm,
        "figure": METRIC_LABELS[name].label,
        "verdict": verdict_text(verdict, sides(comparison)),
        "ratio (interval)": estimate_text(verdict) or "–",
        "p, Holm": p_value(verdict.tests.difference_holm),
    }
    for comparison in analysis.comparisons
    for name, verdict in comparison.verdicts.items()
    if verdict.applies
)
table(verdicts)

# %% [markdown]
# ## The blocks behind each interval
#
# The ratio of each block: as measured, and in brackets from as low to as high as findings
# and lost trials allow. `verdict_rows` has the level of each interval and the weights of
# the autocorrelations; `intervals.py` of a bundle makes the intervals of both.

# %%
judged = pd.DataFrame(verdict_rows(analysis))
effects = pd.DataFrame(effect_rows(analysis))
row = ["server", "workload", "load_value", "load_guests", "neighbour_value", "baseline", "compared", "step", "metric"]
for rows in (judged, effects):
    if len(rows):
        rows[row] = rows[row].fillna("").astype(str)
        rows.drop(columns=[name for name in row if not any(rows[name])], inplace=True)
shown = pd.DataFrame()
if len(effects):
    ends = effects[["low", "mid", "high"]].astype(float).to_numpy()
    effects["ratio"] = [f"{mid:.3g} ({low:.3g} to {high:.3g})" for low, mid, high in ends]
    key = [name for name in row if name in effects]
    shown = effects.pivot(index=key, columns="block", values="ratio").reset_index()
table(shown)

# %%
last = ["kind", "ratio", "low", "high", "level", "blocks", "correlation"]
table(judged[[*(name for name in row if name in judged), *last]] if len(judged) else judged)

# %%
charts(run, analysis, ["overhead", "throughput", "slopes", "cpu", "memory"])

# %% [markdown]
# ## Which facts differ between the two sides

# %%
facts = [
    {"fact": fact.name, "status": fact.status} | dict(fact.values)
    for fact in equality(run)
    if fact.status is not FactStatus.EQUAL
]
table(pd.DataFrame(facts))
