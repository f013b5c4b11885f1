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
# How late the slowest answers are when requests come at a set rate, and until which rate the answers come in time.

# %%
import pandas as pd

from vmtoll.analysis.histograms import goodput_rps
from vmtoll.analysis.verdict import analyse
from vmtoll.report.notebook import charts, open_run, table
from vmtoll.report.plot import usable
from vmtoll.report.words import disagreement_text, estimate_text, scenario_labels, sentence, verdict_text

# %% tags=["parameters"]
RUN = "../../results/tails"  # a run's folder, or an experiment's: then its last run
DEADLINES_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

# %%
run = open_run(RUN)
analysis = analyse(run)
labels = scenario_labels(run)
print(sentence(analysis))

# %% [markdown]
# ## Verdicts on the 99th percentile, counted from the intended send

# %%
tails = [(comparison, comparison.verdicts["tail"]) for comparison in analysis.comparisons]
verdicts = pd.DataFrame(
    {
        "scenario": labels[comparison.scenario],
        "environment": comparison.arm,
        "verdict": verdict_text(tail),
        "estimate [95%]": estimate_text(tail) or "–",
        "p, Holm": tail.tests.difference_holm,
    }
    for comparison, tail in tails
    if tail.applies
)
table(verdicts)

# %% [markdown]
# ## Where closed and open loop disagree

# %%
disagreements = pd.DataFrame(
    {
        "server": item.server,
        "closed": verdict_text(item.closed.verdict),
        "open": verdict_text(item.open.verdict),
        "why": disagreement_text(item),
    }
    for item in analysis.disagreements
)
table(disagreements)

# %%
charts(run, analysis, ["percentiles", "ecdf", "goodput", "knee", "heat"])

# %% [markdown]
# ## Correct answers per second within other deadlines
#
# From the merged histograms, so that any deadline may be asked for after the measurement.

# %%
rows = []
for scenario, label in labels.items():
    for arm in run.arms:
        goodput = goodput_rps(run.path, usable(run, scenario, arm), DEADLINES_MS) if scenario.load.is_open else None
        if goodput is not None:
            within = {f"{deadline} ms": rate for deadline, rate in zip(DEADLINES_MS, goodput, strict=True)}
            rows.append({"scenario": label, "environment": arm} | within)
table(pd.DataFrame(rows))
