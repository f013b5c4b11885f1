"""The verb `report`."""

from vmtoll.commands.conclude import conclude
from vmtoll.commands.options import JsonOption, RunArgument
from vmtoll.files import writing


def report(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Write the report of a run again: analysis.json, report.html, trials.csv, trials.ods."""
    with writing(folder):
        conclusion = conclude(folder)
    print(conclusion.to_json() if as_json else conclusion)
