"""The command `demo`."""

from vmtoll.commands.conclude import conclude
from vmtoll.commands.options import JsonOption, ResultsOption, SuiteOption
from vmtoll.commands.run import run_one
from vmtoll.lab import embedded
from vmtoll.lab.suite import chosen
from vmtoll.paths import RESULTS
from vmtoll.runner.run import plan
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry


def demo(results: ResultsOption = RESULTS, suite: SuiteOption = None, as_json: JsonOption = False) -> None:
    """Bring the embedded lab up, run the experiment `demo`, write its report."""
    embedded.need_root()
    resolved = plan(Registry().experiment_file("demo")).resolved
    embedded.up(resolved.experiment.link, say, release=chosen(suite))
    conclusion = conclude(run_one("demo", None, results))
    print(conclusion.to_json() if as_json else conclusion)
