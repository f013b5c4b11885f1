"""The reference of what users write and read: a page for each kind of YAML document, from the models that check it, and
one for the columns of every table.

`python -m vmtoll.spec.reference FOLDER` writes the pages; scripts/reference does, with that of the commands.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from vmtoll.model.experiment import Experiment
from vmtoll.model.site import DrawnSite, ListedSite
from vmtoll.model.workload import (
    ClosedWorkload,
    MailWorkload,
    OpenLoopWorkload,
    RampWorkload,
    RateWorkload,
    SearchWorkload,
    SharedHostWorkload,
    SteppedWorkload,
    SweepWorkload,
    WebWorkload,
    WorkloadBase,
)
from vmtoll.paths import PROJECT, VM_IMAGES
from vmtoll.spec.server import ServerDefinition

_Schema = Mapping[str, Any]
_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
_LIMITS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}

# Page → its title, what the documents are, and sections: heading → the model whose own keys it lists.
_PAGES: Mapping[str, tuple[str, str, Mapping[str, type[BaseModel]]]] = {
    "experiments": (
        "Experiments",
        "`workloads/experiments/<experiment>.yml`: a question and its matrix. The file's name is the experiment's. "
        "`scales` (`full`, `small`) may lay other values over any key. Example: "
        "[demo.yml](../../workloads/experiments/demo.yml); contract: "
        "[design](../design.md#contract-workloadsexperimentsexperimentyml).",
        {"Keys": Experiment},
    ),
    "workloads": (
        "Workloads",
        "`workloads/<workload>.yml`: what is sent, and how. `kind` decides which keys there are; without it, it is "
        "`closed`. `variants` makes several workloads of one file. Example: "
        "[site-steady.yml](../../workloads/site-steady.yml); contract: "
        "[design](../design.md#contract-workloadsworkloadyml).",
        {
            "Every kind": WorkloadBase,
            "Every kind but `mail`": WebWorkload,
            "`closed`, `rate` and `sweep`": SharedHostWorkload,
            "`rate`, `sweep`, `search` and `ramp`": OpenLoopWorkload,
            "`sweep` and `ramp`": SteppedWorkload,
            "`kind: closed`": ClosedWorkload,
            "`kind: rate`": RateWorkload,
            "`kind: sweep`": SweepWorkload,
            "`kind: search`": SearchWorkload,
            "`kind: ramp`": RampWorkload,
            "`kind: mail`": MailWorkload,
        },
    ),
    "sites": (
        "Sites",
        "`workloads/sites/<site>.yml`: what every server serves, either file by file or drawn from distributions. "
        "Example: [home-2025.yml](../../workloads/sites/home-2025.yml).",
        {"Listed file by file": ListedSite, "Drawn from distributions": DrawnSite},
    ),
    "servers": (
        "Servers",
        "`server-builds/<server>/server.yml`: how a server is installed and started. `of: <server>` takes over another "
        "one's keys; `{name}` and `{folder}` stand for the server's own. Example: "
        "[nginx](../../server-builds/nginx/server.yml); how to add one: [extending](../extending.md).",
        {"Keys": ServerDefinition},
    ),
}


def pages() -> dict[str, str]:
    """File name in `docs/reference` → the page, Markdown."""
    documents = {f"{name}.md": "\n".join(_page(*page)) + "\n" for name, page in _PAGES.items()}
    return documents | {"columns.md": "\n".join(_columns()) + "\n", "profiles.md": _profiles()}


def _page(title: str, introduction: str, sections: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    yield from (f"# {title}", "", introduction)
    listed: dict[str, _Schema] = {}
    for heading, model in sections.items():
        schema = model.model_json_schema()
        bases = [base for base in sections.values() if base in model.__mro__[1:]]
        inherited = {key for base in bases for key in base.model_fields} - set(model.__annotations__)
        keys = {key: part for key, part in schema["properties"].items() if key != "name" and key not in inherited}
        yield from ("", f"## {heading}", "")
        yield from _table(keys, schema.get("required", []))
        listed |= {name: part for name, part in schema.get("$defs", {}).items() if "properties" in part}
    for name, part in listed.items():
        yield from ("", f"## {name}", "", " ".join(part.get("description", "").split()), "")
        yield from _table(part["properties"], part.get("required", []))


def _table(properties: Mapping[str, _Schema], required: list[str]) -> Iterator[str]:
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    for key, schema in properties.items():
        default = "(required)" if key in required else _default(schema.get("default"))
        yield f"| `{key}` | {_value(schema)} | {default} | {schema['description']} |"


def _default(value: object) -> str:
    return "" if value in (None, [], {}) else f"`{_text(value)}`"


def _text(value: object) -> str:
    """A value as YAML has it."""
    return value if isinstance(value, str) else json.dumps(value)


def _value(schema: _Schema) -> str:
    """What may stand there, in words: kinds, choices, limits, a link to a mapping's own table."""
    if "anyOf" in schema:
        return " or ".join(_value(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "$ref" in schema or "allOf" in schema:
        name = str(schema.get("$ref") or schema["allOf"][0]["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema or "enum" in schema:
        return " or ".join(f"`{_text(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if schema["type"] == "array":
        items = schema["items"]
        return f"list of {_value(items)}" + "s" * (items.get("type") in _KINDS and "enum" not in items)
    if schema["type"] == "object":
        inner = schema.get("additionalProperties")
        return f"mapping to {_value(inner)}" if isinstance(inner, dict) else "mapping"
    limits = [f"{word} {schema[key]:,}".removesuffix(".0") for key, word in _LIMITS.items() if key in schema]
    return ", ".join([_KINDS[schema["type"]], *limits])


def _columns() -> Iterator[str]:
    """Every column of every table, from the schemas that a bundle carries."""
    yield from ("# Columns", "", "The tables of a run and of a bundle. Empty cells: not measured. `results/schema` has")
    yield "the same for programs, as Table Schemas of Data Package v2."
    for file in sorted((PROJECT / "results" / "schema").glob("*.json")):
        schema = json.loads(file.read_text(encoding="utf-8"))
        if "fields" in schema:
            yield from ("", f"## {schema['title']}", "", schema["description"], "")
            yield from ("| column | type | unit | meaning |", "|---|---|---|---|")
            for field in schema["fields"]:
                yield f"| `{field['name']}` | {field['type']} | {field['unit']} | {field['description']} |"


def _profiles() -> str:
    """The keys of guest profiles: the file of their defaults, which explains them."""
    defaults = (VM_IMAGES / "defaults.yml").read_text(encoding="utf-8")
    return (
        "# Guest profiles\n\n`vm-images/guests/<profile>.yml`: what a guest is made of. `of: [profiles]` builds on "
        "others. Every key with its default and its meaning is in `vm-images/defaults.yml`; "
        f"[guests](../guests.md) lists the profiles.\n\n```yaml\n{defaults}```\n"
    )


def main() -> None:
    """Write every page into the folder that is named."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
