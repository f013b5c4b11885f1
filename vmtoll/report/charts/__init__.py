"""One file per kind of chart, each with `ORDER` (its place in the report) and `draw(run, analysis)`.

`draw_all` lists this folder to find them. `draw` returns a list of charts, which may be empty.
"""

import importlib
import pkgutil
from collections.abc import Collection

from vmtoll.analysis.run import Run
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.plot import Chart, style

FIRST = "overhead-1"  # the chart of the headline's metric, if it has one


def draw_all(run: Run, analysis: RunAnalysis, only: Collection[str] = ()) -> list[tuple[str, Chart]]:
    """(unique name, chart) in the order of the report.

    `only` names the files whose charts to draw; empty means all.
    """
    names = [module.name for module in pkgutil.iter_modules(__path__) if not only or module.name in only]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    charts: list[tuple[str, Chart]] = []
    with style():
        for module in sorted(modules, key=lambda m: (m.ORDER, m.__name__)):
            short = module.__name__.rpartition(".")[2]
            charts += [(f"{short}-{i}", chart) for i, chart in enumerate(module.draw(run, analysis), start=1)]
    return charts
