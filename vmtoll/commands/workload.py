"""`vmtoll workload`: workloads made from what your own servers saw."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import CommandGroup, describe, subcommand
from vmtoll.commands.options import JsonOption, outside_bundles
from vmtoll.model.message import number
from vmtoll.shell import say

if TYPE_CHECKING:
    from vmtoll.access_log.traffic import Summary

MALFORMED_WARNING = 0.01  # share of the lines above which vmtoll warns
_FEWEST_FOR_BURST = 100  # requests in a minute from which on half of them never fall within 10 s by chance
_HEADERS_RIGHT_TO_BYTES = 70  # error of the headers' size if no answer to HEAD shows it: vmtoll/access_log/headers.py
_SMALL_BYTES = 25_000  # mean body; headers are a hundredth of it: 248 to 259 bytes with Debian 12's Apache

app = typer.Typer(
    cls=CommandGroup,
    help="Create workloads from access logs.",
    epilog=describe("workload", "vmtoll workload from-log access.log --output workloads"),
    no_args_is_help=True,
)


@subcommand(app, "workload from-log", "vmtoll workload from-log access.log.gz --output workloads --name shop")
def from_log(
    logs: Annotated[
        list[Path],
        typer.Argument(help="Access logs in any usual format, plain, .gz or .zst; a series in any order."),
    ],
    output: Annotated[
        Path,
        typer.Option(help="Output folder; use workloads/ so that `vmtoll run` finds them.", callback=outside_bundles),
    ],
    name: Annotated[str, typer.Option(help="Name of the workload and of its site.")] = "from-log",
    lines: Annotated[
        int, typer.Option(min=1, max=100_000, help="Lines of the URL list; fewer if the site would exceed 512 MiB.")
    ] = 1000,
    idle_s: Annotated[
        int, typer.Option(min=0, help="A client's connection counts as closed after a pause of this many seconds.")
    ] = 5,
    largest_kib: Annotated[
        int | None, typer.Option(min=1, help="Cut larger bodies to this size; default: no cut.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="The log's listener speaks TLS (implied by lines of HTTP/2 or 3).")
    ] = False,
    deadline_ms: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Your users' objective in milliseconds: `deadline_ms` of the workloads [default: 50].",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn an access log into a workload and a site of the same sizes, weights and rates.

    Writes OUTPUT/NAME.yml (the rate of the busiest 60 s), NAME-sweep.yml (rising shares of what a machine can
    do), sites/NAME.yml and NAME.summary.json. No address, path, query, referrer or user agent of the log is in them.
    """
    from vmtoll import access_log  # noqa: PLC0415 (loads duckdb)

    largest = None if largest_kib is None else largest_kib * 1024
    options = access_log.Options(
        name=name, lines=lines, idle_s=idle_s, largest_bytes=largest, tls=tls, deadline_ms=deadline_ms
    )
    workload = access_log.from_log(logs, output, options, say)
    if as_json:
        print_json(workload.summary)
        return
    print("\n".join([*_lines(workload.summary), *(f"wrote: {file}" for file in workload.files)]))
    if deadline_ms is None:
        print(
            f"next: set deadline_ms ({access_log.DEADLINE_MS:g} ms) in {name}.yml and {name}-sweep.yml to the "
            "objective of your users, which no log has; --deadline-ms writes it"
        )
    print(
        f"next: name {name} or {name}-sweep under `workloads` of an experiment, and provision the "
        "machines again, for they need the site"
    )


def _lines(summary: "Summary") -> Iterator[str]:
    malformed, site, connections, body = (
        summary["malformed"],
        summary["site"],
        summary["connections"],
        summary["body_bytes"],
    )
    yield f"lines:        {summary['lines']:,}, {malformed['lines']:,} of them malformed{_first_malformed(summary)}"
    if malformed["share"] > MALFORMED_WARNING:
        shapes = ", ".join(f"{line['shape']!r}" for line in malformed["first"])
        yield (
            f"warning:      {malformed['share']:.1%} of the lines are malformed, so rates and mix lack them; they "
            f"have the shapes {shapes}"
        )
    yield from (f"warning:      {_odd_time(odd, summary['logs'])}" for odd in summary["odd_times"])
    shares = (f"{name} {n / summary['requests']:.1%}" for name, n in summary["formats"].items())
    yield f"format:       {', '.join(shares) if len(summary['formats']) > 1 else next(iter(summary['formats']))}"
    yield f"time:         {summary['first_at']} to {summary['last_at']}, {_covered(summary)}"
    second, minute = summary["peak_second"], summary["peak_minute"]
    busiest = f"the busiest minute {number(minute['rate_rps'])} (60 s from {minute['start']}), " if minute else ""
    yield (
        f"rate:         {number(summary['rate_mean_rps'])} requests/s on average; {busiest}the busiest second "
        f"{second['requests']} ({second['start']})"
    )
    yield from _plan(summary)
    yield from _by_hour(summary["hours"])
    yield (
        f"connections:  {number(connections['requests_per_connection_mean'])} requests each on average (median "
        f"{connections['requests_per_connection_p50']}, 90% up to {connections['requests_per_connection_p90']}); "
        f"{connections['keep_alive_share']:.1%} of the requests found one open ({connections['estimate']})"
    )
    for version in (2, 3):
        if share := connections[f"http_{version}_share"]:
            yield f"HTTP/{version}:       {share:.1%} of the requests"
    yield f"304s:         {summary['not_modified_share']:.1%} of the requests"
    if headers := summary["headers"]:
        estimated = headers["full_bytes"] != headers["bodiless_bytes"]
        yield (
            f"headers:      the log counts them with the bodies ({headers['bodiless_bytes']:,} bytes of an answer "
            f"without a body); vmtoll took {headers['full_bytes']:,} bytes off each answer with one"
            f"{f', right to {_HEADERS_RIGHT_TO_BYTES} bytes: small bodies are uncertain' if estimated else ''}"
        )
    if body["answers"] and (unknown := summary["headers_unknown"]) and body["mean"] < _SMALL_BYTES:
        shown = "no answer 304 or 204, and none to HEAD, shows"
        yield (
            f"note:         this format counts headers with the bodies, and {shown} how large they are"
            if unknown == "by-format"
            else f"note:         {shown} whether the log counts headers with the bodies, as Apache's `%O` and nginx's "
            "`$bytes_sent` do"
        )
    if body["answers"]:
        sizes = ", ".join(f"p{p} {body[f'p{p}']:,}" for p in (10, 50, 90, 99))
        yield f"bodies:       {sizes}, largest {body['p100']:,} bytes"
    log = site["of"]
    yield (
        f"site:         {site['files']} files, {site['total_bytes'] / 1e6:.1f} MB, for {log['objects']:,} files of the "
        f"log; {site['lines']} lines{' (more would not fit)' if site['has_fewer_lines'] else ''}, each for "
        f"{log['requests'] / site['lines']:,.1f} requests; mean body "
        f"{site['body_bytes_mean']:,.0f} bytes, in the log {log['body_bytes_mean']:,.0f}"
    )
    left = ", ".join(f"{n:,} {why.replace('_', ' ')}" for why, n in log["left_out"].items())
    cut = f"; {log['cut']:,} bodies cut to the largest size allowed" if log["cut"] else ""
    yield f"stands for:   {log['share']:.1%} of the lines{f' (left out: {left})' if left else ''}{cut}"
    if misjudged := site["misjudged"]:
        share = site["body_bytes_mean"] / log["body_bytes_mean"]
        yield (
            f"warning:      the mean body is {share:.0%} of the log's, so this site misjudges links: "
            f"{misjudged['link_mbit'] / 1000:g} Gbit/s carries {number(misjudged['log_rps'])} requests/s of the log, "
            f"but {number(misjudged['site_rps'])} of the site"
            f"{'; leave out --largest-kib' if misjudged['is_kept_without_largest_kib'] else ''}"
        )


def _odd_time(odd: "Summary", logs: int) -> str:
    """What is odd about the times of lines, and what vmtoll made of it."""
    named = f"line{'s' * (len(odd['lines']) > 1)} {', '.join(map(str, odd['lines']))}"
    if logs > 1:
        named += f" of log {odd['log']}"
    if odd["kind"] == "set-back":
        return (
            f"{named}: the clock goes back to {odd['at']}; vmtoll counts this and later lines {odd['seconds']:,} s "
            "later, so that no time counts twice; if the file joins logs of several servers, give each as a file"
        )
    if odd["kind"] == "silence":
        return (
            f"{named}: no request for {odd['seconds']:,.0f} s after {odd['at']}; the clock was set forward, or lines "
            "are missing: left out of the covered time"
        )
    lines = f"{odd['count']:,} lines, first " * (odd["count"] > len(odd["lines"]))
    return (
        f"{lines}{named}: {odd['at']} is {odd['seconds']:,.0f} s from all other times; left out of rates, mix and sizes"
    )


def _covered(summary: "Summary") -> str:
    parts = f" in {summary['parts']} separate parts" if summary["parts"] > 1 else ""
    return f"{summary['covered_s']:,} s{parts}"


def _plan(summary: "Summary") -> Iterator[str]:
    """The rate to plan for, and what it leaves out."""
    plan, second, ten = summary["plan"], summary["peak_second"], summary["peak_ten_s"]
    if summary["peak_minute"] is None:
        yield (
            f"warning:      the log covers {_covered(summary)}, and no whole minute; the workload has its mean rate, "
            "not a peak; give a log that covers the busiest hour of a week"
        )
        return
    if ten["requests"] > plan["requests"] / 2 and plan["requests"] >= _FEWEST_FOR_BURST:
        share = ten["requests"] / plan["requests"]
        yield (
            f"warning:      {share:.0%} of the busiest minute's requests came within 10 s, "
            f"{number(ten['rate_rps'])} requests/s: the workload has the mean of the minute, so set rate_rps to what "
            "you plan for"
        )
    yield (
        f"plan for:     {number(plan['rate_rps'])} requests/s, the busiest minute; plan for the busiest second "
        f"({number(second['requests'] / plan['rate_rps'])} times as many) only if your objective holds for each second"
    )


def _first_malformed(summary: "Summary") -> str:
    """The first malformed lines, by file (its position among the arguments) and line."""
    first = summary["malformed"]["first"]
    named = ", ".join(f"line {m['line']}" + (f" of log {m['log']}" if summary["logs"] > 1 else "") for m in first)
    return f" ({'first: ' if summary['malformed']['lines'] > len(first) else ''}{named})" if first else ""


def _by_hour(hours: "Sequence[Summary]") -> Iterator[str]:
    """The mean rate for each hour of the day in the log, over all its days; eight hours per line."""
    totals: dict[str, list[int]] = {}
    for hour in hours:
        total = totals.setdefault(hour["start"][11:13], [0, 0])
        total[0] += hour["requests"]
        total[1] += hour["covered_s"]
    cells = [f"{hour}h {number(requests / covered_s):<7}" for hour, (requests, covered_s) in sorted(totals.items())]
    for first in range(0, len(cells), 8):
        yield f"{'' if first else 'by hour UTC:':13} {' '.join(cells[first : first + 8]).rstrip()}"
