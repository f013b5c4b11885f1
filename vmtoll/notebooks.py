"""The verb `notebook`: a notebook on a run, with the parameters that were asked for."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from analysis.load import LoadError
from analysis.notebook import execute
from vmtoll.shell import UserError


def write(name: str, folder: Path, chosen: Sequence[str]) -> Path:
    """Run the notebook, each of `chosen` a `NAME=VALUE`; returns its page. Raises UserError."""
    try:
        return execute(name, folder, dict(_parameter(text) for text in chosen))
    except LoadError as error:
        raise UserError(str(error)) from error


def _parameter(text: str) -> tuple[str, Any]:
    """`P99_MS=20` → ("P99_MS", 20): the value as in JSON, else as in YAML."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UserError(f"--set {text}: give NAME=VALUE, as in --set RATE_RPS=500")
    try:
        return name, json.loads(value)
    except ValueError:  # no JSON; YAML reads words without quotes, but 1e3 as a word
        pass
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"--set {text}: {value!r} is no value of YAML or JSON; quote it, or give a number") from None
