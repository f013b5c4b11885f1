"""The command `demo`."""

from concurrent.futures import ThreadPoolExecutor

from vmtoll.commands.conclude import conclude
from vmtoll.commands.options import JsonOption, ResultsOption, SuiteOption
from vmtoll.commands.run import run_one
from vmtoll.lab import embedded
from vmtoll.lab.suite import chosen
from vmtoll.model.errors import VmtollError
from vmtoll.paths import RESULTS
from vmtoll.provisioning import tools
from vmtoll.runner.run import plan
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry


def demo(results: ResultsOption = RESULTS, suite: SuiteOption = None, as_json: JsonOption = False) -> None:
    """Bring the embedded lab up, run the experiment `demo`, write its report."""
    embedded.need_root()
    resolved = plan(Registry().experiment_file("demo")).resolved
    with ThreadPoolExecutor() as pool:
        compiling = pool.submit(tools.build, resolved.tools)
        try:
            embedded.up(resolved.experiment.link, say, release=chosen(suite))
        except VmtollError:
            if not compiling.done():
                say("the lab did not come up; why follows when the load tools are compiled")
            raise
        compiling.result()
    conclusion = conclude(run_one("demo", None, results))
    print(conclusion.to_json() if as_json else conclusion)
