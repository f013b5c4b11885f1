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
# # Tails
#
# How late the slowest answers of an [open loop] are, and up to which rate they come in time
# ([goodput]).
#
# [open loop]: ../../docs/glossary.md#term-open-loop
# [goodput]: ../../docs/glossary.md#term-goodput

# %%
import pandas as pd

from vmtoll.analysis.histograms import goodput_rps
from vmtoll.analysis.verdict import analyse
from vmtoll.report.notebook import charts, open_run, paragraphs, table
from vmtoll.report.plot import usable_trials
from vmtoll.report.words import estimate_text, p_value, scenario_labels, sentence, sides_of, verdict_text

# %% tags=["parameters"]
RUN = "../../results/tails"  # a run's folder, or an experiment's: then its last run
DEADLINES_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

# %%
run = open_run(RUN)
analysis = analyse(run)
labels = scenario_labels(run)
paragraphs([sentence(analysis)])

# %% [markdown]
# ## Verdicts on the 99th percentile, counted from the intended send
#
# The [verdict] is on the [p99] of the [response times]. The [validity] of a trial is valid,
# [suspect] or invalid. Invalid trials are excluded.
# Square brackets hold the [95% interval] over [blocks]. The last column is the p-value after [Holm's correction].
#
# [verdict]: ../../docs/glossary.md#term-verdict
# [p99]: ../../docs/glossary.md#term-p99
# [response times]: ../../docs/glossary.md#term-response-time
# [suspect]: ../../docs/glossary.md#term-suspect
# [validity]: ../../docs/glossary.md#term-validity
# [95% interval]: ../../docs/glossary.md#term-interval
# [blocks]: ../../docs/glossary.md#term-block
# [Holm's correction]: ../../docs/glossary.md#term-holm

# %%
sides = sides_of(analysis.comparisons)
tails = [(comparison, comparison.verdicts["tail"]) for comparison in analysis.comparisons]
verdicts = pd.DataFrame(
    {
        "scenario": labels[comparison.scenario],
        "environment": comparison.arm,
        "verdict": verdict_text(tail, sides(comparison)),
        "ratio (interval)": estimate_text(tail) or "–",
        "p, Holm": p_value(tail.tests.difference_holm),
    }
    for comparison, tail in tails
    if tail.applies
)
table(verdicts)

# %%
charts(run, analysis, ["percentiles", "ecdf", "goodput", "knee", "heat"])

# %% [markdown]
# ## Correct answers per second within other deadlines
#
# They come from the merged histograms, so you can ask for any deadline after the measurement.

# %%
rows = []
for scenario, label in labels.items():
    for arm in run.arms:
        goodput = (
            goodput_rps(run.path, usable_trials(run, scenario, arm), DEADLINES_MS) if scenario.load.is_open else None
        )
        if goodput is not None:
            within = {f"{deadline} ms": rate for deadline, rate in zip(DEADLINES_MS, goodput, strict=True)}
            rows.append({"scenario": label, "environment": arm} | within)
table(pd.DataFrame(rows))
