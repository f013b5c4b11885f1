"""CPU per request: of the server in its own machine, and of the whole guest on its host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.load import Run
from analysis.panels import shown_labels
from analysis.plot import GUESTS, Chart, Lane, Look, lanes_of, medians_in_words, strip

ORDER = 40


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart, from the tool's window; from the twin's when the tool has no figures."""
    labels = shown_labels(run)
    for prefix in ("", "twin_"):
        server = f"{prefix}server_cpu_us_per_request"
        host = f"{prefix}host_cpu_us_per_request"
        lanes = lanes_of(run, labels, dict.fromkeys(run.environments, server))
        if not lanes:
            continue
        lanes += [_on_host(lane) for lane in lanes_of(run, labels, dict.fromkeys(run.guests, host))]
        caption = (
            "Server: CPU time of the server's processes as their own machine accounts it. On the host: QEMU and"
            " vhost threads, so the guest's whole kernel as well; it is the price the host pays."
        )
        alt = medians_in_words(lanes, "µs")
        return [Chart("CPU time per request", caption, alt, strip(lanes, "µs of CPU per request"))]
    return []


def _on_host(lane: Lane) -> Lane:
    """The guest as its host sees it: same place in the palette, another shape, hollow."""
    colour = GUESTS[(GUESTS.index(lane.look.colour) + 2) % len(GUESTS)]
    label = f"{lane.look.label.split(' ')[0]}, on its host"
    return replace(lane, look=Look(label, colour, "X", False))
