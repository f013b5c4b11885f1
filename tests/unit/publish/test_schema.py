"""Schemas of tables that are kept by hand allow every value that the model has."""

import json
from dataclasses import replace
from enum import StrEnum

import pytest

from vmtoll.analysis import schema
from vmtoll.analysis.schema import FOLDER
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.table import columns_of
from vmtoll.model.trial import Accelerator, TrialRecord


@pytest.mark.parametrize(
    ("column", "values"), [("limiter", Limiter), ("accelerator", Accelerator), ("hardware", Hardware)]
)
def test_a_summary_may_have_every_value(column: str, values: type[StrEnum]) -> None:
    fields = json.loads((FOLDER / "summaries.json").read_text())["fields"]
    (allowed,) = [field["constraints"]["enum"] for field in fields if field["name"] == column]
    assert allowed == [value.value for value in values]


def test_a_figure_with_a_heading_has_its_median_in_the_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    (steal,) = [column for column in columns_of(TrialRecord) if column.name == "host_steal_pct"]
    monkeypatch.setattr(schema, "side_figures", lambda: [replace(steal, heading="host steal %")])
    fields = schema.schema.__wrapped__("summaries")["fields"]
    assert fields[:-1] == json.loads((FOLDER / "summaries.json").read_text())["fields"]
    assert fields[-1] == steal.schema | {"description": f"median over the trials: {steal.doc}"}
