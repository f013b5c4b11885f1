"""Charts of a report, by kind. A file has `CHARTS` (kind → its place in the report, and what draws it), or `ORDER` and
`draw` for the one kind that it is named after.

`draw_all` lists this folder to find them. What draws a kind returns a list of charts, which may be empty.
"""

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterator

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.report.plot import Chart, style

FIRST = "overhead-1"  # the chart of the headline's metric, if it has one


def _kinds() -> Iterator[tuple[int, str, Callable[[Run, RunAnalysis], list[Chart]]]]:
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        kinds = getattr(module, "CHARTS", None) or {found.name: (module.ORDER, module.draw)}
        yield from ((order, name, draw) for name, (order, draw) in kinds.items())


def draw_all(run: Run, analysis: RunAnalysis, only: Collection[str] = ()) -> list[tuple[str, Chart]]:
    """(unique name, chart) in the order of the report.

    `only` names the kinds to draw; empty means all.
    """
    charts: list[tuple[str, Chart]] = []
    with style():
        for _, name, draw in sorted(_kinds(), key=lambda kind: kind[:2]):
            if not only or name in only:
                charts += [(f"{name}-{i}", chart) for i, chart in enumerate(draw(run, analysis), start=1)]
    return charts
