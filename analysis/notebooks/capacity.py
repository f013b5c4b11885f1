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
# How many metal hosts or guests an objective takes, and what that rests on.

# %%
from dataclasses import replace

import pandas as pd

from analysis.capacity import default_slo, findings
from analysis.capacity.slo import Demand, Slo
from analysis.capacity.words import beside, facts
from analysis.show import charts, open_run, table, tables

# %% tags=["parameters"]
RUN = "../../results/tails"  # a run's folder, or an experiment's: then its last run
RATE_RPS = 2000  # that all machines together must answer
P99_MS = None  # the objective; None: the deadline of the run's own ladder or search
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
found = findings(run, slo, demand)
for sentence in [*found["sentences"], *beside(found)]:
    print(sentence)

# %% [markdown]
# ## What stands behind it

# %%
known = {f"{r['server']} on {r['environment']} ({r['size']} each)": facts(r) for r in found["results"]}
tables((heading, pd.DataFrame(rows, columns=["", "figure"])) for heading, rows in known.items())

# %%
charts(run, ["goodput", "knee", "consolidation", "scaling"])

# %% [markdown]
# ## How throughput scales (Universal Scalability Law, six levels or more)

# %%
laws = pd.DataFrame(
    {key: law[key] for key in ("server", "environment", "over", "alpha", "beta", "gamma", "text")}
    for law in found["scaling"]
)
table(laws) if len(laws) else print("This run has no such sweep.")

# %% [markdown]
# ## Other rates
#
# Machines needed by the low rate of one; loads as fractions of it.

# %%
FIGURES = ("units", "hosts", "load", "load_after_failure", "load_after_host_failure")
rates = [RATE_RPS * factor for factor in (0.5, 1, 2, 5)]
others = [(rate, findings(run, slo, replace(demand, rate_rps=rate))) for rate in rates]
rows = []
for rate, other in others:
    for result in other["results"]:
        plan = result["plan"]["low"]
        rows.append(
            {"server": result["server"], "environment": result["environment"], "requests per second": f"{rate:,.0f}"}
            | {name.replace("_", " "): plan[name] if plan else float("nan") for name in FIGURES}
            | {"shape only": "yes" if result["shape_only"] else ""}
        )
table(pd.DataFrame(rows))

# %% [markdown]
# ## Assumed

# %%
for text in found["assumes"]:
    print(f"- {text}")
