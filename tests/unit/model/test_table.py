"""Tables by their fields: names, types and constraints follow from a field, and cells from its value."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, Field

from vmtoll.model.table import Described, Part, column, columns, columns_of, nested, rows, schema_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Size:
    width_ms: float = column("width {}")
    count: int | None = column("count {}", least=1, default=None)


class Facts(BaseModel):
    kernel: str | None = Field(default=None, json_schema_extra={"columns": (Described(doc="its kernel"),)})  # type: ignore[dict-item]


@dataclass(frozen=True)
class Row:
    name: str = column("the row")
    size: Size = nested(prefix="own_", whose="of the row")
    facts: Facts = nested()
    sizes: Mapping[str, float] = columns(
        Described(doc="the first", name="first", value=lambda sizes: sizes.get("first"), kind="number", unit="m"),
    )
    colour: Colour = column("a colour", before="own_count", default=Colour.RED)
    other: Size | None = nested(
        Part(prefix="other_", whose="of the other", only=("count",)),
        Part(of=Size, source="twice", prefix="twice_", lead="of both: ", without=("count",)),
        default=None,
    )
    hidden: int = 0

    @property
    def twice(self) -> Size:
        return Size(2 * self.size.width_ms)


FULL = Row("a", Size(1.5, 2), Facts(kernel="6.1"), {"first": 0.5}, Colour.BLUE, Size(3.0, 4))


def test_columns_are_in_the_order_of_the_fields_but_those_before_another() -> None:
    assert [each.name for each in columns_of(Row)] == [
        "name", "own_width_ms", "colour", "own_count", "kernel", "first", "other_count", "twice_width_ms",
    ]  # fmt: skip


def test_a_row_has_the_value_of_each_field() -> None:
    assert list(rows([FULL])) == [
        {
            "name": "a", "own_width_ms": 1.5, "colour": "blue", "own_count": 2, "kernel": "6.1", "first": 0.5,
            "other_count": 4, "twice_width_ms": 3.0,
        }
    ]  # fmt: skip


def test_what_is_absent_is_an_empty_cell() -> None:
    (row,) = rows([Row("a", Size(1.5), Facts(), {})])
    assert {name for name, cell in row.items() if cell is None} == {"own_count", "kernel", "first", "other_count"}


def test_a_schema_follows_from_the_types() -> None:
    schema = schema_of(Row, "rows", "Rows.", key=("name",))
    by_name = {field["name"]: field for field in schema["fields"]}
    assert (schema["title"], schema["primaryKey"]) == ("rows.csv", ["name"])
    assert by_name["own_width_ms"] == {
        "name": "own_width_ms", "type": "number", "unit": "ms", "description": "width of the row",
        "constraints": {"required": True, "minimum": 0},
    }  # fmt: skip
    assert by_name["colour"]["constraints"] == {"required": True, "enum": ["red", "blue"]}
    assert by_name["other_count"]["constraints"] == {"required": False, "minimum": 1}
    assert (by_name["first"]["unit"], by_name["kernel"]["unit"], by_name["own_count"]["unit"]) == ("m", "none", "1")
    assert not by_name["kernel"]["constraints"]["required"]


def test_each_column_reads_its_own_cell() -> None:
    assert [each.cell(FULL) for each in columns_of(Row)] == list(next(rows([FULL])).values())
