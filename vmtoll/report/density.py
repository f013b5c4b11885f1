"""How many guests a host carries: the section of the report, the lines of a terminal, and the JSON."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from vmtoll.analysis.run import Run
from vmtoll.capacity.density import CarriedGuests, carried_guests, hosts_for
from vmtoll.report import words


def section(run: Run) -> dict[str, Any] | None:
    """The report's section; None without an experiment of density, or without trials."""
    answers, density = carried_guests(run), run.manifest.experiment.density
    if density is None or not answers:
        return None
    return {
        "tiles": words.tiles_text(density),
        "availability": f"{density.availability_pct:g}%",
        "sentences": [words.carried_text(answer) for answer in answers],
        "notes": [note for answer in answers for note in words.density_notes(answer)],
        "headings": words.DENSITY_HEADINGS,
        "rows": [
            {"environment": answer.environment, "cells": words.count_cells(count)}
            for answer in answers
            for count in answer.counts
        ],
    }


def sentences(run: Run) -> list[str]:
    """What the host carries, a sentence for each environment; empty for a run without density."""
    return [words.carried_text(answer) for answer in carried_guests(run)]


def lines(run: Run, guests: int, spare: int) -> Iterator[str]:
    """Lines for a terminal: the hosts that these guests need, then what one host carries, and what that rests on."""
    answers = carried_guests(run)
    yield from (words.hosts_text(guests, answer, spare) for answer in answers)
    for answer in answers:
        yield f"\n{words.carried_text(answer)}"
        for count in answer.counts:
            cells = zip(words.DENSITY_HEADINGS[1:], words.count_cells(count)[1:], strict=True)
            yield f"    {words.plural(count.guests, 'guest')}: " + ", ".join(f"{name} {cell}" for name, cell in cells)
        yield from (f"    note: {note}" for note in words.density_notes(answer))


def document(run: Run, guests: int, spare: int) -> dict[str, Any]:
    """The same as codes, numbers and sentences."""
    answers = carried_guests(run)
    carried: list[dict[str, Any]] = json.loads(TypeAdapter(list[CarriedGuests]).dump_json(answers))
    hosts = [hosts_for(guests, answer, spare) for answer in answers]
    return {
        "run_id": run.manifest.run_id,
        "density": [
            answer | {"hosts": {end: getattr(by_end, end) for end in ("low", "mid", "high")} if by_end else None}
            for answer, by_end in zip(carried, hosts, strict=True)
        ],
        "sentences": [words.hosts_text(guests, answer, spare) for answer in answers],
    }
