"""The command `report`."""

from vmtoll.commands.conclude import conclude
from vmtoll.commands.options import JsonOption, RunArgument


def report(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Write the report of a run again: analysis.json, report.html, trials.csv, trials.ods."""
    conclusion = conclude(folder)
    print(conclusion.to_json() if as_json else conclusion)
