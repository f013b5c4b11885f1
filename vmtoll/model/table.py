"""Tables whose columns are described at the fields of their rows: name, type, unit, what a cell holds, and its value.

A class of rows is a dataclass or a pydantic model; `column` describes a field that is a column, `nested` a field whose
class has columns. `schema_of` and `rows` read both.
"""

import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints

Cell = str | int | float | bool | None
_UNITS = {"s": "s", "ms": "ms", "us": "µs", "rps": "1/s", "pct": "%", "kib": "KiB", "mb": "MB", "j": "J"}
_TYPES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number"}
_NUMBERS = ("integer", "number")


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


@dataclass(frozen=True, kw_only=True)
class Described:
    """One column, as its field describes it; a part that is empty or None follows from the field."""

    doc: str
    name: str = ""
    source: str = ""  # path of attributes from the row to the value
    value: Callable[[Any], Cell] | None = None  # the cell of a value that is not None
    empty: Cell = None  # the cell without a value
    kind: str = ""  # type of a Table Schema
    unit: str = ""  # default: by the name of a number, `none` for others
    least: int | None = 0
    most: int | None = None
    choices: Collection[str] | None = None
    required: bool | None = None
    before: str = ""  # the column that it precedes, where that is not its field's place
    heading: str = ""  # of its median over trials in the report; summaries have that too

    @property
    def schema(self) -> Column:
        """The column in a Table Schema."""
        constraints: dict[str, bool | int | list[str]] = {"required": bool(self.required)}
        constraints |= {} if self.kind not in _NUMBERS or self.least is None else {"minimum": self.least}
        constraints |= {} if self.most is None else {"maximum": self.most}
        constraints |= {"enum": [str(choice) for choice in self.choices]} if self.choices else {}
        return {
            "name": self.name, "type": self.kind, "unit": self.unit, "description": self.doc, "constraints": constraints
        }  # fmt: skip

    def cell(self, row: Any) -> Cell:
        """The cell of a row; `empty` where a part of the path to the value is None or absent."""
        value = row
        for name in self.source.split("."):
            value = getattr(value, name, None)
        return self.written(value)

    def written(self, value: Any) -> Cell:
        """The cell of a value."""
        if value is None:
            return self.empty
        cell: Cell = self.value(value) if self.value else value
        return cell


@dataclass(frozen=True, kw_only=True)
class Part:
    """The columns of a class, as a field of another class takes them over."""

    of: type | None = None  # the class; None: the field's
    source: str = ""  # path of attributes from the row to the object; empty: the field's name
    prefix: str = ""  # of the names
    lead: str = ""  # of the descriptions
    whose: str = ""  # replaces {} in the descriptions
    unit: str = ""  # of all, in place of their own
    before: str = ""  # the column that they precede
    only: Collection[str] = ()
    without: Collection[str] = ()

    def columns(self) -> Iterator["Described"]:
        """The columns, as those of the class that has the field."""
        assert self.of
        for each in columns_of(self.of):
            if (not self.only or each.name in self.only) and each.name not in self.without:
                yield replace(
                    each, name=self.prefix + each.name, doc=self.lead + each.doc.replace("{}", self.whose),
                    source=f"{self.source}.{each.source}", unit=self.unit or each.unit,
                    before=self.before or each.before,
                )  # fmt: skip


def column(doc: str, unit: str = "", *, default: Any = MISSING, **options: Any) -> Any:
    """A field that is a column; `options` as in Described."""
    return columns(Described(doc=doc, unit=unit, **options), default=default)


def columns(*described: Described, default: Any = MISSING, default_factory: Any = MISSING) -> Any:
    """A field that has several columns."""
    return field(default=default, default_factory=default_factory, metadata={"columns": described})


def nested(*parts: Part, default: Any = MISSING, **options: Any) -> Any:
    """A field whose class has columns; `options` as in Part."""
    return field(default=default, metadata={"columns": parts or (Part(**options),)})


@cache
def columns_of(row: Any) -> tuple[Described, ...]:
    """The columns of a class of rows, in the table's order."""
    table: list[Described] = []
    for name, described in _described(row):
        source = described.source or name
        value_type, may_lack = _type_at(row, source)
        if isinstance(described, Described):
            table.append(_complete(described, name, source, value_type, may_lack))
        else:
            part = replace(described, of=described.of or value_type, source=source)
            table += [replace(each, required=each.required and not may_lack) for each in part.columns()]
    return tuple(_ordered(table))


def schema_of(row: type, name: str, description: str, key: Sequence[str] = ()) -> Schema:
    """The Data Package schema of the table `name`, which has rows of this class."""
    schema: Schema = {
        "$schema": "https://datapackage.org/profiles/2.0/tableschema.json",
        "title": f"{name}.csv",
        "description": description,
        "fields": [each.schema for each in columns_of(row)],
        "missingValues": [""],
    }
    return {**schema, "primaryKey": list(key)} if key else schema


def rows(objects: Iterable[object]) -> Iterator[dict[str, Cell]]:
    """Yield the objects as rows of their table: column → cell."""
    for row in objects:
        row_class: Any = type(row)
        parts, cells = _plan(row_class)
        values = {"": row}
        for path, (parent, name) in parts.items():
            values[path] = getattr(values[parent], name, None)
        yield {each.name: each.written(getattr(values[path], name, None)) for each, path, name in cells}


@cache
def _plan(row: Any) -> tuple[dict[str, tuple[str, str]], list[tuple[Described, str, str]]]:
    """How to read a row: path of each part that has cells → path of what has the part, and its name there; (column,
    path of what has its value, and the value's name there) of each column.
    """
    parts: dict[str, tuple[str, str]] = {}
    cells: list[tuple[Described, str, str]] = []
    for each in columns_of(row):
        *names, last = each.source.split(".")
        path = ""
        for name in names:
            parts[f"{path}.{name}"] = path, name
            path = f"{path}.{name}"
        cells.append((each, path, last))
    return parts, cells


def unit_of(name: str) -> str:
    """The unit that a figure's name contains: `response_time_p99_us` → µs; 1 for a count or a share."""
    if name.endswith("_mb_per_s"):
        return "MB/s"
    return next((_UNITS[part] for part in reversed(name.split("_")) if part in _UNITS), "1")


def _described(row: Any) -> Iterator[tuple[str, Described | Part]]:
    """Yield (field, column or columns that it has)."""
    if is_dataclass(row):
        described: list[tuple[str, Any]] = [(each.name, each.metadata) for each in fields(row)]
    else:
        described = [(name, info.json_schema_extra or {}) for name, info in row.model_fields.items()]
    yield from ((name, each) for name, metadata in described for each in metadata.get("columns", ()))


def _complete(described: Described, name: str, source: str, value_type: Any, may_lack: bool) -> Described:
    """The column of a field, with what follows from the field's name and type."""
    name, kind = described.name or name, described.kind or _TYPES.get(value_type, "string")
    is_choice = isinstance(value_type, type) and issubclass(value_type, StrEnum) and described.value is None
    required = not may_lack and described.value is None
    return replace(
        described, name=name, source=source, kind=kind,
        unit=described.unit or (unit_of(name) if kind in _NUMBERS else "none"),
        choices=described.choices or (list(value_type) if is_choice else None),
        value=attrgetter("value") if is_choice else described.value,
        required=required if described.required is None else described.required,
    )  # fmt: skip


def _type_at(row: type, path: str) -> tuple[Any, bool]:
    """The type of the value at a path of attributes, and whether it may be absent."""
    value_type, may_lack = row, False
    for name in path.split("."):
        attribute = getattr(value_type, name, None)
        hints = get_type_hints(attribute.fget) if isinstance(attribute, property) else get_type_hints(value_type)
        value_type, lacks = _plain(hints["return" if isinstance(attribute, property) else name])
        may_lack |= lacks
    return value_type, may_lack


def _plain(hint: Any) -> tuple[Any, bool]:
    """A type without None, and whether None was part of it."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    known = [part for part in get_args(hint) if part is not type(None)]
    return known[0], len(known) < len(get_args(hint))


def _ordered(table: Sequence[Described]) -> Iterable[Described]:
    """The columns with each that precedes another one before that one, if the table has it."""
    ordered = list(table)
    for each in table:
        if any(other.name == each.before for other in ordered):
            ordered.remove(each)
            place = next(index for index, other in enumerate(ordered) if other.name == each.before)
            ordered.insert(place, replace(each, before=""))
    return ordered
