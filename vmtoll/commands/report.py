"""The verb `report`."""

from vmtoll.commands.conclude import conclude
from vmtoll.commands.options import RunArgument


def report(folder: RunArgument) -> None:
    """Write the report of a run again: analysis.json, report.html, trials.csv, trials.ods."""
    print(conclude(folder))
