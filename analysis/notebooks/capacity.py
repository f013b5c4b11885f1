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
# # Capacity
#
# How many machines or [guests] an objective needs, and the figures behind that number.
# The objective is a limit of the [p99] and of the failures; a [rate sweep] shows which rates meet it.
#
# [guests]: ../../docs/glossary.md#term-guest
# [p99]: ../../docs/glossary.md#term-p99
# [rate sweep]: ../../docs/glossary.md#term-rate-sweep

# %%
from dataclasses import replace

import pandas as pd

from vmtoll.analysis.verdict import analyse
from vmtoll.capacity.objective import Demand, Slo
from vmtoll.capacity.planner import assess_capacity, default_slo
from vmtoll.model.trial import is_shape_only
from vmtoll.report.capacity import facts, scaling_text, sentences, sharing_and_scaling_sentences, size_text
from vmtoll.report.notebook import charts, open_run, paragraphs, table, tables

# %% tags=["parameters"]
RUN = "../../results/tails"  # a run's folder, or an experiment's: then its last run
RATE_RPS = 2000  # that all machines together must answer
P99_MS = None  # the objective; None: the deadline of the run's own rate sweep or search
AVAILABILITY_PCT = 99.9
HEADROOM_PCT = 30
SPARE = 1
GUESTS_PER_HOST = 1
HOST_COST_PER_HOUR = None
WATTS = None

# %%
run = open_run(RUN)
deadline = default_slo(run)
p99_ms = P99_MS or (deadline.p99_ms if deadline else None)
slo = Slo(p99_ms, AVAILABILITY_PCT) if p99_ms else None
demand = Demand(RATE_RPS, HEADROOM_PCT, SPARE, GUESTS_PER_HOST, HOST_COST_PER_HOUR, WATTS)
found = assess_capacity(run, slo, demand)
paragraphs([*sentences(found), *sharing_and_scaling_sentences(found)])

# %% [markdown]
# ## Figures
#
# Low, mid and high are by the unfavourable end of the [95% interval] over [blocks], by the estimate,
# and by the favourable end. "At least" and "at most" are [bounds].
#
# [95% interval]: ../../docs/glossary.md#term-interval
# [blocks]: ../../docs/glossary.md#term-block
# [bounds]: ../../docs/glossary.md#term-bound

# %%
known = {f"{r.server} on {r.environment} ({size_text(r.size)} each)": facts(r) for r in found.results}
tables((heading, pd.DataFrame(rows, columns=["", "figure"])) for heading, rows in known.items())

# %%
charts(run, analyse(run), ["goodput", "knee", "consolidation", "scaling"])

# %% [markdown]
# ## How throughput scales (Universal Scalability Law, six levels or more)

# %%
laws = pd.DataFrame(
    {"server": s.server, "environment": s.environment, "over": s.over.value}
    | {name: getattr(s.law, name) for name in ("alpha", "beta", "gamma")}
    | {"text": scaling_text(s)}
    for s in found.scaling
)
table(laws)

# %% [markdown]
# ## Other rates
#
# Machines needed by the low rate of one; loads as fractions of it.

# %%
FIGURES = ("units", "hosts", "load", "load_after_failure", "load_after_host_failure")
rates = [RATE_RPS * factor for factor in (0.5, 1, 2, 5)]
rows = []
for rate in rates:
    for result in assess_capacity(run, slo, replace(demand, rate_rps=rate)).results:
        plan = result.plan.low if result.plan else None
        rows.append(
            {"server": result.server, "environment": result.environment, "requests per second": f"{rate:,.0f}"}
            | {name.replace("_", " "): getattr(plan, name) if plan else float("nan") for name in FIGURES}
            | {"shape only": "yes" if is_shape_only(result.accelerator, result.hardware) else ""}
        )
table(pd.DataFrame(rows))

# %% [markdown]
# ## Assumed

# %%
paragraphs(assumption.text for assumption in found.assumptions)
