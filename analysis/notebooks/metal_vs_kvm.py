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
# # Metal against KVM
#
# What a guest costs in requests per second, in latency and in CPU per request, and what that rests on.

# %%
import pandas as pd

from analysis.equality import EQUAL, equality
from analysis.judge import estimate_words
from analysis.show import charts, open_run, table
from analysis.verdict import verdict_of

# %% tags=["parameters"]
RUN = "../../results/demo"  # a run's folder, or an experiment's: then its last run

# %%
run = open_run(RUN)
outcome = verdict_of(run)
print(outcome["sentence"])

# %% [markdown]
# ## Verdicts

# %%
verdicts = pd.DataFrame(
    {
        "scenario": result["label"],
        "environment": result["environment"],
        "figure": one["label"],
        "verdict": one["text"],
        "estimate [95%]": estimate_words(one) if one["blocks"] else "–",
        "p, Holm": one["p_holm"],
    }
    for result in outcome["results"]
    for one in result["metrics"].values()
    if one["applies"]
)
table(verdicts)

# %%
charts(run, ["overhead", "throughput", "slopes", "cpu", "memory"])

# %% [markdown]
# ## Which facts differ between the two sides

# %%
facts = [{"fact": fact.name, "status": fact.status} | fact.values for fact in equality(run) if fact.status != EQUAL]
table(pd.DataFrame(facts))
