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
# # What was published, and what this run says to it
#
# First the claims of the experiment, then every published figure beside ours. Machines, kernels and servers differ
# by more than fifteen years: look at the relations between servers, not at the absolute numbers.

# %%
import pandas as pd

from analysis.claims import judge_claims
from analysis.replication import replication
from analysis.show import open_run, table, tables

# %% tags=["parameters"]
RUN = "../../results/demo"  # a run's folder, or an experiment's: then its last run

# %%
run = open_run(RUN)
figures, judged = replication(run), judge_claims(run)
if figures.empty and not judged:
    print("This experiment repeats no published experiment.")
if run.emulated:
    print("The guest of this run was emulated (TCG): none of its figures is a KVM figure.")

# %%
table(
    pd.DataFrame(
        {
            "claim": one.says,
            "outcome": one.outcome,
            "published": one.published_ratio,
            "ratio here": one.ratio.words if one.ratio else "",
            "why": one.why,
        }
        for one in judged
    )
)

# %%
LEFT_OUT = ["experiment", "source", "published", "version", "note"]
figures["value"] = figures["value"].map("{:,.10g}".format)  # as published
tables(
    (str(metric), part.drop(columns=[*LEFT_OUT, "metric"])) for metric, part in figures.groupby("metric", sort=False)
)
