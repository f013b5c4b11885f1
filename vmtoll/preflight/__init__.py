"""Whether a lab is fit to be measured: all that is wrong with it, before anything runs.

One check, one file of checks/, found by listing that folder. Each has `ORDER` (its place) and `check(lab)`, which
gives its findings. What has to be looked at on a machine itself is a program of probes/: standard-library Python 3.9
that prints one line of JSON.
"""

import importlib
import pkgutil
from collections.abc import Iterator

from vmtoll.preflight import checks
from vmtoll.preflight.finding import Finding, fail
from vmtoll.preflight.lab import Lab
from workloads.runner.errors import RunnerError


def findings(lab: Lab) -> Iterator[tuple[str, Finding]]:
    """(name of the check, finding), as they are found. A check that breaks is a finding, and the next one goes on."""
    names = [module.name for module in pkgutil.iter_modules(checks.__path__)]
    modules = [importlib.import_module(f"{checks.__name__}.{name}") for name in names]
    for module in sorted(modules, key=lambda module: module.ORDER):
        name = module.__name__.rpartition(".")[2]
        try:
            for finding in module.check(lab):
                yield name, finding
        except RunnerError as error:
            yield name, fail("", f"the check broke off: {error}", "Mend that and check again.")
