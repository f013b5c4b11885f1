"""Read one run directory and refuse what does not keep the contract, naming the file and the column."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.places import numbers, place_of, place_words
from analysis.schema import FOLDER, fields

SCHEMA = 1
BASELINE = "metal"
AA_ARM = "metal-b"
VERDICTS = ("valid", "suspect", "invalid")

CELL = ["block", "environment", "server", "workload", "tool", "offered_load"]
SCENARIO = ["server", "workload", "tool", "offered_load"]

FIELDS = fields("trials")
COLUMNS = [str(field["name"]) for field in FIELDS]
INTEGER_COLUMNS = [str(field["name"]) for field in FIELDS if field["type"] == "integer"]
FLOAT_COLUMNS = [str(field["name"]) for field in FIELDS if field["type"] == "number"]
NEVER_EMPTY = [str(field["name"]) for field in FIELDS if field.get("constraints", {}).get("required")]
# Gate code → `verdict` (suspect or invalid) and `meaning`.
GATES: dict[str, dict[str, str]] = json.loads((FOLDER / "gates.json").read_text(encoding="utf-8"))
REQUIRED_KEYS = ["schema", "run_id", "experiment", "status", "accelerators", "emulated", "differences"]


class LoadError(ValueError):
    """A run directory that cannot be analysed; the message names the file and the column or key."""


@dataclass(frozen=True)
class Run:
    """One run: `attempts` has every row of trials.csv, `trials` the last attempt of each cell.

    Both carry one column more than the file: `codes`, the gate codes of `reasons` as a tuple.
    """

    path: Path
    meta: dict[str, Any]
    hosts: dict[str, dict[str, Any]]
    attempts: pd.DataFrame

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Shape: (cells, columns); only the last attempt of a cell counts."""
        ordered = self.attempts.sort_values([*CELL, "attempt"], kind="stable")
        return ordered.drop_duplicates(CELL, keep="last").sort_values(["block", "order"], ignore_index=True)

    @cached_property
    def environments(self) -> list[str]:
        """The baseline first, then the A/A arm, then the guests by name."""
        found = set(self.trials["environment"])
        return [e for e in (BASELINE, AA_ARM) if e in found] + self.guests

    @cached_property
    def guests(self) -> list[str]:
        """Every environment that is compared with the baseline."""
        return sorted(set(self.trials["environment"]) - {BASELINE, AA_ARM})

    @cached_property
    def cells(self) -> dict[tuple[str, ...], pd.DataFrame]:
        """Scenario (server, workload, tool, offered_load), sorted → its trials, of all environments."""
        return {tuple(map(str, scenario)): rows for scenario, rows in self.trials.groupby(SCENARIO)}

    @property
    def scenarios(self) -> list[tuple[str, ...]]:
        """(server, workload, tool, offered_load): by server, closed loops first, then from light to heavy load."""
        return sorted(self.cells, key=lambda s: (s[0], load_order(s[3]), s))

    @property
    def searches(self) -> dict[str, dict[str, Any]]:
        """The workloads whose rates followed from what was measured before, with their keys."""
        experiment = self.meta["experiment"]
        known = experiment.get("resolved", {}).get("workloads", {}) if isinstance(experiment, dict) else {}
        return {name: workload for name, workload in known.items() if workload.get("kind") == "search"}

    @property
    def compared(self) -> list[tuple[str, ...]]:
        """The scenarios whose sides are compared block by block: a search chooses each side's rates by itself."""
        return [scenario for scenario in self.scenarios if scenario[SCENARIO.index("workload")] not in self.searches]

    @property
    def local(self) -> list[str]:
        """The workloads whose client was on the machine under test itself."""
        return sorted(set(self.trials.loc[self.trials["client"] == "localhost", "workload"]))

    def accelerator(self, environment: str) -> str:
        """`none`, `kvm`, `tcg` or `unknown`."""
        known: dict[str, str] = self.meta["accelerators"]
        if environment == AA_ARM:
            environment = AA_ARM if AA_ARM in known else BASELINE
        return str(known.get(environment, "unknown"))

    @property
    def emulated(self) -> bool:
        """True when any environment ran under software emulation, whichever file says so."""
        return bool(self.meta["emulated"]) or bool((self.attempts["accelerator"] == "tcg").any())


def scenario_labels(run: Run) -> dict[tuple[str, ...], str]:
    """Scenario → the shortest label that tells it apart: the server, then load, workload and tool as need be."""
    labels = {s: s[0] for s in run.scenarios}
    for column in ("offered_load", "workload", "tool"):
        place = SCENARIO.index(column)
        if len(set(labels.values())) < len(labels) and len({s[place] for s in run.scenarios}) > 1:
            labels = {s: f"{label} · {load_words(s[place])}" for s, label in labels.items()}
    return labels


def load_order(offered_load: str) -> tuple[str, float, tuple[float, ...]]:
    """A sort key: closed loops, then rates, then shares, each from light to heavy; then by guests, and by dose."""
    kind, _, figure = offered_load.partition(" ")[0].partition(":")
    return kind, float(figure), tuple(numbers(place_of(offered_load)).values())


def load_words(offered_load: str) -> str:
    """`closed:10` → `10 users`, `rate:2000` → `2,000 req/s`, `share:0.7` → `70% of capacity`; else unchanged.

    What stands behind it follows: `rate:300 guests:2` → `300 req/s, 2 guests`.
    """
    if place := place_of(offered_load):
        return f"{load_words(offered_load.partition(' ')[0])}, {place_words(place)}"
    kind, _, figure = offered_load.partition(":")
    if kind == "closed":
        return f"{figure} users"
    if kind == "rate":
        return f"{float(figure):,g} req/s"
    return f"{100 * float(figure):g}% of capacity" if kind == "share" else offered_load


def load_run(run_dir: Path | str) -> Run:
    """Read `run.json`, `hosts.json` and `trials.csv` of a run directory; raises LoadError."""
    path = Path(run_dir)
    meta = _read_json(path / "run.json")
    missing = [key for key in REQUIRED_KEYS if key not in meta]
    if missing:
        raise LoadError(f"{path / 'run.json'}: missing key(s): {', '.join(missing)}")
    if meta["schema"] != SCHEMA:
        raise LoadError(f"{path / 'run.json'}: schema is {meta['schema']!r}, this program reads {SCHEMA}")
    return Run(path, meta, _read_json(path / "hosts.json"), _read_trials(path / "trials.csv"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file; is this a run directory?") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise LoadError(f"{path}: expected an object, got {type(value).__name__}")
    return value


def _read_trials(path: Path) -> pd.DataFrame:
    try:
        raw = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file; is this a run directory?") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from None
    missing = [column for column in NEVER_EMPTY if column not in raw.columns]
    if missing:
        raise LoadError(f"{path}: missing column(s): {', '.join(missing)}")
    # A run is older than the columns that came after it: for these it has no figures.
    raw = raw.reindex(columns=[*COLUMNS, *(c for c in raw.columns if c not in COLUMNS)], fill_value="")
    trials = raw.copy()
    for column in INTEGER_COLUMNS:
        trials[column] = _numbers(path, raw, column, whole=True)
    for column in FLOAT_COLUMNS:
        trials[column] = _numbers(path, raw, column, whole=False)
    _check(path, raw, trials)
    trials["codes"] = [
        tuple(part.split(":", 1)[0].strip() for part in text.split(" | ") if part) for text in raw["reasons"]
    ]
    return trials


def _numbers(path: Path, raw: pd.DataFrame, column: str, *, whole: bool) -> pd.Series:
    """Empty cells become missing values; anything else must be a finite number. Python's float reads each
    to the nearest double; pandas' own parser is off by one bit at times.
    """
    values: list[float] = []
    for row, text in enumerate(raw[column]):
        try:
            value = float(text) if text.strip() else math.nan
        except ValueError:
            value = math.inf
        if math.isinf(value) or (text.strip() and math.isnan(value)) or (whole and value % 1 > 0):
            kind = "a whole number" if whole else "a number"
            raise LoadError(f"{path}: line {row + 2}, column {column}: {text!r} is not {kind}")
        values.append(value)
    return pd.Series(values, index=raw.index, dtype=float).astype("Int64" if whole else float)


def _check(path: Path, raw: pd.DataFrame, trials: pd.DataFrame) -> None:
    for column in NEVER_EMPTY:
        empty = raw[column].str.strip() == ""
        if empty.any():
            raise LoadError(f"{path}: line {int(empty.idxmax()) + 2}, column {column}: empty")
    unknown = ~trials["verdict"].isin(VERDICTS)
    if unknown.any():
        row = int(unknown.idxmax())
        raise LoadError(
            f"{path}: line {row + 2}, column verdict: {trials['verdict'][row]!r} is none of " + ", ".join(VERDICTS)
        )
    for more, planned in (("successful", "requests"), ("twin_failed", "twin_requests")):
        beyond = (trials[more] > trials[planned]).fillna(False)
        if beyond.any():
            row = int(beyond.idxmax())
            raise LoadError(
                f"{path}: line {row + 2}, column {more}: {trials[more][row]}, more than the {trials[planned][row]} of "
                f"{planned}; leave the row out or correct it"
            )
    doubled = trials.duplicated([*CELL, "attempt"])
    if doubled.any():
        row = int(doubled.idxmax())
        raise LoadError(f"{path}: line {row + 2}, column attempt: the same attempt of a trial stands twice")
