"""The verb `workload from-log`: what came of a log, printed."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vmtoll.progress import say
from vmtoll.shell import UserError
from workloads.from_log import LogError, Options, from_log


def make(logs: Sequence[Path], output: Path, options: Options, *, as_json: bool) -> None:
    """Write the workload's files and print the summary, as text or JSON. Raises UserError."""
    try:
        made = from_log(logs, output, options, say)
    except LogError as error:
        raise UserError(str(error)) from error
    if as_json:
        print(json.dumps(made.summary, indent=1))
        return
    print("\n".join([*_lines(made.summary), *(f"wrote: {file}" for file in made.files)]))
    print(
        f"next: name {options.name} or {options.name}-ladder under `workloads` of an experiment, and provision the "
        "machines anew, for they need the site"
    )


def _lines(seen: dict[str, Any]) -> Iterator[str]:
    malformed, site, connections, body = seen["malformed"], seen["site"], seen["connections"], seen["body_bytes"]
    yield f"lines:        {seen['lines']:,}, of which {malformed['lines']:,} malformed{_where(seen)}"
    yield f"time:         {seen['first_at']} to {seen['last_at']}"
    second, minute = seen["peak_second"], seen["peak_minute"]
    yield (
        f"rate:         {seen['rate_mean_rps']:.3g} requests/s on average; the busiest minute {minute['rate_rps']:.3g} "
        f"({minute['start']}), the busiest second {second['requests']} ({second['start']})"
    )
    yield from _by_hour(seen["hours"])
    yield (
        f"connections:  {connections['requests_per_connection_mean']:.3g} requests each on average (median "
        f"{connections['requests_per_connection_p50']}, 90% up to {connections['requests_per_connection_p90']}); "
        f"{connections['keep_alive_share']:.1%} of the requests found one open ({connections['estimate']})"
    )
    yield f"304s:         {seen['not_modified_share']:.1%} of the requests"
    if body["answers"]:
        sizes = ", ".join(f"p{p} {body[f'p{p}']:,}" for p in (10, 50, 90, 99))
        yield f"bodies:       {sizes}, largest {body['p100']:,} bytes"
    of = site["of"]
    yield (
        f"site:         {site['files']} files, {site['total_bytes'] / 1e6:.1f} MB, for {of['objects']:,} files of the "
        f"log; {site['lines']} lines, each for {of['requests'] / site['lines']:,.1f} requests; mean body "
        f"{site['body_bytes_mean']:,.0f} bytes, in the log {of['body_bytes_mean']:,.0f}"
    )
    left = ", ".join(f"{n:,} {why.replace('_', ' ')}" for why, n in of["left_out"].items())
    cut = f"; {of['cut']:,} bodies cut to the largest size allowed" if of["cut"] else ""
    yield f"stands for:   {of['share']:.1%} of the requests{f' (left out: {left})' if left else ''}{cut}"


def _where(seen: dict[str, Any]) -> str:
    """The first malformed lines, by file (its place among the arguments) and line."""
    first = seen["malformed"]["first"]
    named = ", ".join(f"line {m['line']}" + (f" of log {m['log']}" if seen["logs"] > 1 else "") for m in first)
    return f" ({'first: ' if seen['malformed']['lines'] > len(first) else ''}{named})" if first else ""


def _by_hour(hours: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The mean rate of each hour of the day that the log has, over all its days; eight hours a line."""
    rates: dict[str, list[float]] = {}
    for hour in hours:
        rates.setdefault(hour["start"][11:13], []).append(hour["rate_rps"])
    cells = [f"{hour}h {sum(each) / len(each):<7.3g}" for hour, each in sorted(rates.items())]
    for first in range(0, len(cells), 8):
        yield f"{'' if first else 'by hour UTC:':13} {' '.join(cells[first : first + 8]).rstrip()}"
