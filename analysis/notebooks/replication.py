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
# # What was published, and what this run shows of it
#
# First come the claims of the experiment: each is [confirmed], [refuted] or
# [inconclusive here]. Square brackets hold the [95% interval] over [blocks].
# Then comes every published figure with ours. Machines, kernels and servers differ by more than fifteen years: compare
# the relations between servers, not the absolute numbers.
#
# [confirmed]: ../../docs/glossary.md#term-confirmed
# [refuted]: ../../docs/glossary.md#term-refuted
# [inconclusive here]: ../../docs/glossary.md#term-inconclusive
# [95% interval]: ../../docs/glossary.md#term-interval
# [blocks]: ../../docs/glossary.md#term-block

# %%
import pandas as pd

from vmtoll.analysis.claims import judge_claims
from vmtoll.analysis.published import replication
from vmtoll.report.notebook import open_run, table, tables
from vmtoll.report.words import point_text, ratio_text, reasons_text

# %% tags=["parameters"]
RUN = "../../results/demo"  # a run's folder, or an experiment's: then its last run

# %%
run = open_run(RUN)
points, claims = replication(run), judge_claims(run)
if not points and not claims:
    print("This experiment repeats no published experiment.")
if run.emulated:
    print("The guest of this run was emulated (TCG): none of its figures is a KVM figure.")

# %%
table(
    pd.DataFrame(
        {
            "claim": claim.says,
            "outcome": claim.outcome.text,
            "published": claim.published_ratio,
            "ratio here": ratio_text(claim.ratio) if claim.ratio else "",
            "why": reasons_text(claim),
        }
        for claim in claims
    )
)

# %%
figures = pd.DataFrame(
    {
        "metric": point.figure.metric,
        "server": point.figure.server,
        "environment": point.figure.environment,
        "tool": point.figure.tool,
        "load": point.figure.load,
        "keep_alive": point.figure.keep_alive,
        "payload_bytes": point.figure.payload_bytes,
        "value": f"{point.figure.value:,.10g}",  # as published
        "unit": point.figure.unit,
        "here": f"{', '.join(point.servers)} on {', '.join(point.environments)}" if point.servers else "",
        "ours": point.measured_level.value,
        "ratio": point.ratio,
        "shape": point.shape.text,
        "why": point_text(point),
    }
    for point in points
)
metrics = list(dict.fromkeys(figures["metric"])) if points else []
tables((metric, figures[figures["metric"] == metric].drop(columns="metric")) for metric in metrics)
