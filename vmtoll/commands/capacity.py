"""The command `capacity`: how many machines meet an objective, from the measurements of a run."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from vmtoll.commands.answer import print_either
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument, percent
from vmtoll.model.document import plain_message
from vmtoll.model.errors import UserError

describe("capacity", "vmtoll capacity results/latest --rate 2000 --p99-ms 50")


def capacity(
    folder: RunArgument,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Requests per second for all machines together.")
    ] = None,
    p99_ms: Annotated[
        float | None, typer.Option(min=0.001, help="Objective: 99% answered within this many milliseconds.")
    ] = None,
    guests: Annotated[
        int | None,
        typer.Option(min=1, help="For a run of density, instead of --rate and --p99-ms: the number of guests to host."),
    ] = None,
    availability: Annotated[
        float,
        typer.Option(
            parser=partial(percent, least=0.001, most=99.9999),
            metavar="PERCENT",
            help="Objective: percent of requests answered with success.",
        ),
    ] = 99.9,
    headroom: Annotated[
        float,
        typer.Option(
            parser=percent, metavar="PERCENT", help="Headroom: plan for this many percent more than the rate."
        ),
    ] = 30,
    spare: Annotated[int, typer.Option(min=0, help="Spare machines (or guests).")] = 1,
    guests_per_host: Annotated[int, typer.Option(min=1, help="Guests per host.")] = 1,
    host_cost_per_hour: Annotated[
        float | None, typer.Option(min=0, help="Cost of a host per hour, in your currency.")
    ] = None,
    watts: Annotated[
        float | None, typer.Option(min=0, help="Watts that a host draws under load (default: its own count, RAPL).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print how many metal hosts or guests meet an objective, from a run with a rate sweep or a search.

    Also prints how many guests can share a host and how throughput scales, if the run measured them. With --guests,
    prints how many hosts that number of guests needs, from a run of density.
    """
    if guests is not None:
        if rate is not None or p99_ms is not None:
            raise UserError("--guests: the run has its own loads and objectives; leave out --rate and --p99-ms")
        _print_hosts(folder, guests, spare, as_json=as_json)
        return
    if rate is None or p99_ms is None:
        raise UserError("give --rate and --p99-ms, or --guests for a run of density")
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
        raise UserError(f"{first['loc'][0]}: {plain_message(first)} (got {first['input']})") from error
    run = load_run(folder)
    answer = planner.assess_capacity(run, slo, demand)
    if answer.is_empty:
        raise UserError(f"{folder}: {no_capacity_text(run)}")
    print_either(as_json, lambda: document(answer), lambda: lines(answer))


def _print_hosts(folder: Path, guests: int, spare: int, *, as_json: bool) -> None:
    """Print how many hosts these guests need. Raises UserError for a run without density."""
    from vmtoll.analysis.run import load_run  # noqa: PLC0415
    from vmtoll.report.density import document, lines, section  # noqa: PLC0415

    run = load_run(folder)
    if section(run) is None:
        raise UserError(
            f"{folder}: --guests: in this run no guests had separate loads; measure one with vmtoll run density, "
            "or give --rate and --p99-ms"
        )
    print_either(as_json, lambda: document(run, guests, spare), lambda: lines(run, guests, spare))
