"""Check a lab before anything runs, and report all that is wrong with it.

Each check is one file of checks/, found by listing that folder, with `ORDER` (its position) and `check(lab)`, which
yields its results. A check asks the agent on a machine.
"""

import importlib
import pkgutil
from collections.abc import Iterator

from vmtoll.model.errors import VmtollError
from vmtoll.preflight import checks
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail


def results(lab: Lab) -> Iterator[tuple[str, CheckResult]]:
    """Yield (name of the check, result) as they come. A check that breaks off yields an error, and the next runs."""
    names = [module.name for module in pkgutil.iter_modules(checks.__path__)]
    modules = [importlib.import_module(f"{checks.__name__}.{name}") for name in names]
    for module in sorted(modules, key=lambda module: module.ORDER):
        name = module.__name__.rpartition(".")[2]
        try:
            for result in module.check(lab):
                yield name, result
        except VmtollError as error:
            yield name, fail("", f"the check broke off: {error}", "Correct that and check again.")
