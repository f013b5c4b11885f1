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
# What a [guest] costs against [metal] in requests per second, in latency and in CPU per request, and the
# figures behind it.
#
# [guest]: ../../docs/glossary.md#term-guest
# [metal]: ../../docs/glossary.md#term-metal

# %%
import pandas as pd

from vmtoll.analysis.equality import Status, equality
from vmtoll.analysis.verdict import analyse
from vmtoll.report.notebook import charts, open_run, paragraphs, table
from vmtoll.report.words import METRIC_LABELS, estimate_text, p_value, scenario_labels, sentence, verdict_text

# %% tags=["parameters"]
RUN = "../../results/demo"  # a run's folder, or an experiment's: then its last run

# %%
run = open_run(RUN)
analysis = analyse(run)
paragraphs([sentence(analysis)])

# %% [markdown]
# ## Verdicts
#
# Each row is one [scenario] and figure. The [verdict] is faster, slower, [equivalent],
# [undecided] or [invalid]. The [validity] of a trial is valid, [suspect] or invalid.
# Invalid trials are excluded. Square brackets hold the [95% interval] over [blocks].
# "At least" is a [bound]. The last column is the p-value after [Holm's correction].
#
# [scenario]: ../../docs/glossary.md#term-scenario
# [verdict]: ../../docs/glossary.md#term-verdict
# [equivalent]: ../../docs/glossary.md#term-equivalent
# [undecided]: ../../docs/glossary.md#term-undecided
# [invalid]: ../../docs/glossary.md#term-invalid
# [suspect]: ../../docs/glossary.md#term-suspect
# [validity]: ../../docs/glossary.md#term-validity
# [95% interval]: ../../docs/glossary.md#term-interval
# [blocks]: ../../docs/glossary.md#term-block
# [bound]: ../../docs/glossary.md#term-bound
# [Holm's correction]: ../../docs/glossary.md#term-holm

# %%
labels = scenario_labels(run)
verdicts = pd.DataFrame(
    {
        "scenario": labels[comparison.scenario],
        "environment": comparison.arm,
        "figure": METRIC_LABELS[name].label,
        "verdict": verdict_text(verdict),
        "ratio (interval)": estimate_text(verdict) or "–",
        "p, Holm": p_value(verdict.tests.difference_holm),
    }
    for comparison in analysis.comparisons
    for name, verdict in comparison.verdicts.items()
    if verdict.applies
)
table(verdicts)

# %%
charts(run, analysis, ["overhead", "throughput", "slopes", "cpu", "memory"])

# %% [markdown]
# ## Which facts differ between the two sides

# %%
facts = [
    {"fact": fact.name, "status": fact.status} | dict(fact.values)
    for fact in equality(run)
    if fact.status is not Status.EQUAL
]
table(pd.DataFrame(facts))
