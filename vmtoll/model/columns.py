"""trials.csv: one flat row per trial record, exported from trials.jsonl, and the schema of its columns."""

import csv
import io
from collections.abc import Iterable
from enum import StrEnum
from typing import NotRequired, TypedDict

from vmtoll.model.finding import Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import LoadKind
from vmtoll.model.trial import (
    Accelerator,
    ClientPlace,
    Conditions,
    Counts,
    Figure,
    Measurement,
    Offered,
    Resources,
    Scenario,
    TrialRecord,
    figures_of,
    without_thin_percentiles,
)

CROSSCHECK = "crosscheck_"
Cell = str | int | float | bool | None


class Column(TypedDict):
    """A field of a Table Schema (Data Package v2), with its unit."""

    name: str
    type: str
    unit: str
    description: str
    constraints: dict[str, bool | int | list[str]]


Schema = TypedDict(
    "Schema",
    {
        "$schema": str, "title": str, "description": str, "fields": list[Column], "missingValues": list[str],
        "primaryKey": NotRequired[list[str]],
    },
)  # fmt: skip

_IDENTITY = (
    ("run_id", "string", "the run that the trial belongs to"),
    ("block", "integer", "block, from 1; each scenario occurs once in a block"),
    ("boot", "integer", "boot of the machines under test in this run, from 1; the blocks of a boot follow each other"),
    (
        "order",
        "integer",
        "place within the block, from 1; the arms of a scenario follow each other, reversed in every other block",
    ),
    ("attempt", "integer", "attempt at this trial, from 1"),
    ("environment", "string", "metal, a container, a guest's profile (kvm-…), or a change or an operation of one"),
    ("replicate", "integer", "1, or 2 for the A/A control: the same environment measured again in the block"),
    ("accelerator", "string", "what ran the machine's code: none (metal, container), kvm, tcg (software emulation)"),
    (
        "hardware",
        "string",
        "what the host of the machine runs on: native (the hardware itself), nested (another hypervisor),"
        " emulated (a CPU emulated in software). Unknown: not recorded, or its sources do not tell",
    ),
    ("release", "string", "operating system of the machine, as Debian 13; unknown: the run does not record it"),
    ("server", "string", "server under measurement"),
    ("workload", "string", "what was sent, and how"),
    ("load_kind", "string", "closed (users), rate (open loop), share (open loop, of the closed-loop capacity)"),
    ("load_value", "number", "users, requests per second, or the share, by load_kind"),
    ("load_guests", "integer", "guests that the workload spreads its load over; empty where it does not say"),
    ("neighbour_kind", "string", "rate or share: the load on the neighbour; empty without one"),
    ("neighbour_value", "number", "requests per second or the share, by neighbour_kind"),
    ("client", "string", "where the load tool ran: remote (on the clients) or localhost (on the machine under test)"),
    ("clients", "integer", "machines that sent the load together; mail and a ramp are sent by the first client alone"),
    ("guests", "integer", "machines under test that shared the load; their CPU and memory are added up"),
    ("started_at", "datetime", "start of the measured load, UTC, ISO 8601"),
)
_TRIAL_FIGURES = [figure for group in (Resources, Conditions, Counts) for figure in figures_of(group)]
_TOOL_FIGURES = figures_of(Measurement)
# Column prefix → role, figures. A figure that both the primary tool and the whole trial have is the same: one column.
_FIGURES = {
    "": (Role.PRIMARY, [f for f in _TOOL_FIGURES if f.name not in {of_trial.name for of_trial in _TRIAL_FIGURES}]),
    CROSSCHECK: (Role.CROSSCHECK, _TOOL_FIGURES),
}
_UNITS = {"s": "s", "ms": "ms", "us": "µs", "rps": "1/s", "pct": "%", "kib": "KiB", "mb": "MB", "j": "J"}
_TYPES = {"int | None": "integer", "float | None": "number", "str | None": "string"}
_REQUIRED = {name for name, _, _ in _IDENTITY} - {"load_guests", "neighbour_kind", "neighbour_value"} | {"validity"}
_FROM_ONE = {"block", "boot", "order", "attempt", "replicate", "load_guests", "clients", "guests"}
_TO_HUNDRED = {"availability_pct", "cpu_mhz_spread_pct", "warmup_slower_pct"}
_CHOICES: dict[str, type[StrEnum]] = {
    "accelerator": Accelerator, "hardware": Hardware, "load_kind": LoadKind, "neighbour_kind": LoadKind,
    "client": ClientPlace, "validity": Validity,
}  # fmt: skip
_LAST_COLUMNS = (
    ("fixed_cost_s", "number", "s", "wall clock of the trial less the time under load"),
    ("loaded_s", "number", "s", "wall clock of its loads: warm-up, measurements, a capacity measured for it"),
    ("validity", "string", "", "whether the trial may be used: valid, suspect or invalid"),
    ("findings", "string", "", "codes of the checks that fired, separated by spaces; code@crosscheck where it concerns"
     " only the cross-check. trials.jsonl has machine, process, value and limit of each"),
)  # fmt: skip


def table_schema() -> Schema:
    """The Data Package schema of trials.csv: each column's name, type, unit and description."""
    columns = [_column(name, kind, "", text) for name, kind, text in _IDENTITY]
    columns += [_figure(figure) for figure in figures_of(Offered)]
    for prefix, (role, figures) in _FIGURES.items():
        source = "cross-check: " if role is Role.CROSSCHECK else ""
        columns.append(_column(f"{prefix}tool", "string", "", f"{source}load tool"))
        columns += [_figure(figure, prefix, source) for figure in figures]
    columns += [_figure(figure) for figure in _TRIAL_FIGURES]
    columns += [_column(*column) for column in _LAST_COLUMNS]
    return {
        "$schema": "https://datapackage.org/profiles/2.0/tableschema.json",
        "title": "trials.csv",
        "description": "One row per attempt at a trial: what was sent, what came back, what it cost, what the gates"
        " found. Empty: not measured. Units are in the names.",
        "fields": columns,
        "missingValues": [""],
        "primaryKey": ["run_id", "block", "order", "attempt"],
    }


def _column(name: str, kind: str, unit: str, text: str) -> Column:
    constraints: dict[str, bool | int | list[str]] = {"required": name in _REQUIRED}
    if kind in ("integer", "number"):
        constraints["minimum"] = 1 if name in _FROM_ONE else 0
    if name.removeprefix(CROSSCHECK) in _TO_HUNDRED:
        constraints["maximum"] = 100
    if name in _CHOICES:
        constraints["enum"] = [choice.value for choice in _CHOICES[name]]
    return {"name": name, "type": kind, "unit": unit or "none", "description": text, "constraints": constraints}


def _figure(figure: Figure, prefix: str = "", source: str = "") -> Column:
    return _column(prefix + figure.name, _TYPES[figure.type], unit_of(figure.name), source + figure.description)


def unit_of(name: str) -> str:
    """The unit that a figure's name contains: `response_time_p99_us` → µs; 1 for a count or a share."""
    if name.endswith("_mb_per_s"):
        return "MB/s"
    return next((_UNITS[part] for part in reversed(name.split("_")) if part in _UNITS), "1")


COLUMNS = [column["name"] for column in table_schema()["fields"]]


def flat_scenario(scenario: Scenario) -> dict[str, Cell]:
    """The columns that identify a scenario."""
    load, neighbour = scenario.load, scenario.load.neighbour
    return {
        "server": scenario.server, "workload": scenario.workload,
        "load_kind": load.kind.value, "load_value": load.value, "load_guests": load.guests,
        "neighbour_kind": neighbour.kind.value if neighbour else None,
        "neighbour_value": neighbour.value if neighbour else None,
    }  # fmt: skip


def flat(record: TrialRecord) -> dict[str, Cell]:
    """The record as a row: column → value, in the order of COLUMNS.

    None where nothing was measured, and for percentiles of too few requests.
    """
    record = without_thin_percentiles(record)
    row: dict[str, Cell] = {
        "run_id": record.run_id, "block": record.block, "boot": record.boot, "order": record.order,
        "attempt": record.attempt, "environment": record.arm.environment, "replicate": record.arm.replicate,
        "accelerator": record.accelerator.value, "hardware": record.hardware.value,
        "release": record.release,
        **flat_scenario(record.scenario), "client": record.client.value,
        "clients": record.clients, "guests": record.guests, "started_at": record.started_at,
    }  # fmt: skip
    row |= vars(record.offered)
    for prefix, (role, figures) in _FIGURES.items():
        measurement = record.measurement(role)
        row[f"{prefix}tool"] = measurement.tool if measurement else None
        row |= {prefix + figure.name: measurement.column(figure.name) if measurement else None for figure in figures}
    row |= vars(record.resources) | vars(record.conditions) | vars(record.counts)
    codes = [f"{f.code}@crosscheck" if f.role is Role.CROSSCHECK else str(f.code) for f in record.findings]
    row |= {"fixed_cost_s": record.fixed_cost_s, "loaded_s": record.loaded_s, "validity": record.validity.value}
    return row | {"findings": " ".join(dict.fromkeys(codes))}


# Column → the part of a record that has it, apart from what a tool measured.
_PARTS = {
    column.name: part
    for part, group in (("offered", Offered), ("resources", Resources), ("conditions", Conditions), ("counts", Counts))
    for column in figures_of(group)
}


def value_of(record: TrialRecord, column: str) -> float | None:
    """The figure of a record in a numeric column; None where it was not measured, or has too few requests."""
    if part := _PARTS.get(column):
        value: float | None = getattr(getattr(record, part), column)
        return value
    role = Role.CROSSCHECK if column.startswith(CROSSCHECK) else Role.PRIMARY
    measurement = without_thin_percentiles(record).measurement(role)
    return measurement.column(column.removeprefix(CROSSCHECK)) if measurement else None


def to_csv(records: Iterable[TrialRecord]) -> bytes:
    """trials.csv of these records."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([_cell(value) for value in flat(record).values()])
    return text.getvalue().encode()


def _cell(value: Cell) -> Cell:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else value
