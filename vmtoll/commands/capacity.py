"""The command `capacity`: how many machines meet an objective, from the measurements of a run."""

from typing import Annotated

import typer
from pydantic import ValidationError

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument
from vmtoll.model.document import plain_message
from vmtoll.model.errors import UserError

describe("capacity", "vmtoll capacity results/latest --rate 2000 --p99-ms 50")


def capacity(
    folder: RunArgument,
    rate: Annotated[float, typer.Option(min=0.001, help="Requests per second that all machines together must answer.")],
    p99_ms: Annotated[float, typer.Option(min=0.001, help="Objective: 99% answered within this many milliseconds.")],
    availability: Annotated[
        float, typer.Option(min=0.001, max=99.9999, help="Objective: percent of requests answered with success.")
    ] = 99.9,
    headroom: Annotated[float, typer.Option(min=0, help="Plan for this many percent more than the rate.")] = 30,
    spare: Annotated[int, typer.Option(min=0, help="Machines (or guests) beyond those that are needed.")] = 1,
    guests_per_host: Annotated[int, typer.Option(min=1, help="How many guests share a host.")] = 1,
    host_cost_per_hour: Annotated[
        float | None, typer.Option(min=0, help="What a host costs per hour, in your currency.")
    ] = None,
    watts: Annotated[
        float | None, typer.Option(min=0, help="What a host draws under load (default: what it counted itself, RAPL).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print how many metal hosts or guests meet an objective, from a run with a rate sweep or a search.

    Also prints how many guests can share a host and how throughput scales, if the run measured them.
    """
    from vmtoll.analysis.run import load_run  # noqa: PLC0415 (loads the analysis)
    from vmtoll.capacity import planner  # noqa: PLC0415
    from vmtoll.capacity.objective import Demand, Slo  # noqa: PLC0415
    from vmtoll.report.capacity import document, lines, no_capacity_text  # noqa: PLC0415

    try:
        slo = Slo(p99_ms=p99_ms, availability_pct=availability)
        demand = Demand(
            rate_rps=rate, headroom_pct=headroom, spare=spare, guests_per_host=guests_per_host,
            host_cost_per_hour=host_cost_per_hour, watts=watts,
        )  # fmt: skip
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{first['loc'][0]}: {plain_message(first['msg'])} (got {first['input']})") from error
    run = load_run(folder)
    answer = planner.assess_capacity(run, slo, demand)
    if answer.is_empty:
        raise UserError(f"{folder}: {no_capacity_text(run)}")
    if as_json:
        print_json(document(answer))
    else:
        print("\n".join(lines(answer)))
