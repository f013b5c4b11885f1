"""Schemas of tables that are kept by hand allow every value that the model has."""

import json
from enum import StrEnum

import pytest

from vmtoll.analysis.schema import FOLDER
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.trial import Accelerator


@pytest.mark.parametrize(
    ("column", "values"), [("limiter", Limiter), ("accelerator", Accelerator), ("hardware", Hardware)]
)
def test_a_summary_may_have_every_value(column: str, values: type[StrEnum]) -> None:
    fields = json.loads((FOLDER / "summaries.json").read_text())["fields"]
    (allowed,) = [field["constraints"]["enum"] for field in fields if field["name"] == column]
    assert allowed == [value.value for value in values]
