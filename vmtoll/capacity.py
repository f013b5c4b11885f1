"""The verb `capacity`: what a run says about an objective, printed."""

import json
from pathlib import Path
from typing import Any

from analysis.capacity import capacity
from analysis.capacity.slo import Demand, Slo
from analysis.capacity.words import lines
from analysis.load import load_run
from vmtoll.shell import UserError


def show(run_dir: Path, *, objective: dict[str, Any], demand: dict[str, Any], as_json: bool) -> None:
    """Print it as text, or as JSON; `objective` and `demand` are the fields of Slo and Demand. Raises UserError."""
    try:
        found = capacity(load_run(run_dir), Slo(**objective), Demand(**demand))
    except ValueError as error:  # a figure that cannot be, or what is wrong with the run
        raise UserError(str(error)) from error
    print(json.dumps(found, indent=1, ensure_ascii=False) if as_json else "\n".join(lines(found)))
