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

from analysis.judge import estimate_words
from analysis.latency import goodput_rps
from analysis.load import scenario_labels
from analysis.metrics import OPEN, loop_of
from analysis.plot import figures
from analysis.show import charts, open_run, table
from analysis.verdict import verdict_of

# %% tags=["parameters"]
RUN = "../../results/tails"  # a run's folder, or an experiment's: then its last run
DEADLINES_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

# %%
run = open_run(RUN)
outcome = verdict_of(run)
print(outcome["sentence"])

# %% [markdown]
# ## Verdicts on the 99th percentile, counted from the intended send

# %%
tails = [(result, result["metrics"]["tail"]) for result in outcome["results"]]
verdicts = pd.DataFrame(
    {
        "scenario": result["label"],
        "environment": result["environment"],
        "verdict": tail["text"],
        "estimate [95%]": estimate_words(tail) if tail["blocks"] else "–",
        "p, Holm": tail["p_holm"],
    }
    for result, tail in tails
    if tail["applies"]
)
table(verdicts)

# %% [markdown]
# ## Where closed and open loop disagree

# %%
disagreements = pd.DataFrame(
    {"server": item["server"], "closed": item["closed"]["text"], "open": item["open"]["text"], "why": item["reason"]}
    for item in outcome["disagreements"]
)
table(disagreements)

# %%
charts(run, ["percentiles", "ecdf", "goodput", "knee", "heat"])

# %% [markdown]
# ## Correct answers per second within other deadlines
#
# From the merged histograms, so that any deadline may be asked for after the measurement.

# %%
rows = []
for scenario, label in scenario_labels(run).items():
    for environment in run.environments:
        trials = figures(run, scenario, environment)
        goodput = goodput_rps(run.path, trials, DEADLINES_MS) if loop_of(scenario[3]) == OPEN else None
        if goodput is not None:
            within = {f"{deadline} ms": rate for deadline, rate in zip(DEADLINES_MS, goodput, strict=True)}
            rows.append({"scenario": label, "environment": environment} | within)
table(pd.DataFrame(rows))
