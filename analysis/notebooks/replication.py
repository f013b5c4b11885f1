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
# # The published experiments
#
# One row per published figure, and beside it what this run has to say. Machines, kernels and servers differ by
# more than fifteen years: look at the order of the servers and at guest ÷ metal, not at the absolute numbers.

# %%
from analysis.replication import replication
from analysis.show import open_run, tables

# %% tags=["parameters"]
RUN = "../../results/demo"  # a run's folder, or an experiment's: then its last run

# %%
run = open_run(RUN)
figures = replication(run)
print(f"{figures['ours'].notna().sum()} of {len(figures)} published figures have one of this run beside them.")
if run.emulated:
    print("The guest of this run was emulated (TCG): none of its figures is a KVM figure.")

# %%
LEFT_OUT = ["experiment", "source", "published", "version", "keep_alive", "note"]
figures["value"] = figures["value"].map("{:,.10g}".format)  # as published
tables(
    (f"{experiment}: {source}", part.drop(columns=LEFT_OUT))
    for (experiment, source), part in figures.groupby(["experiment", "source"], sort=False)
)
