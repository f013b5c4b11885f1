"""Generate the reference of what users write and read: a page for each kind of YAML document, from the models that
check it, one for guest profiles, and one for the columns of every table.

`python -m vmtoll.spec.reference FOLDER` writes the pages; scripts/reference writes them and the page of the commands.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from vmtoll.files import parse_yaml
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


class Section(NamedTuple):
    """A model, whose keys the section lists unless the section of a base does, and shipped files with such keys."""

    model: type[BaseModel]
    examples: tuple[str, ...]


_OWN = "[your own folder](../how-to/your-own-folder.md)"
# Page → its title, what the documents are, and sections by heading.
PAGES: Mapping[str, tuple[str, str, Mapping[str, Section]]] = {
    "experiments": (
        "Experiments",
        f"`workloads/experiments/<experiment>.yml`, or `experiments/` of {_OWN}: a question and its matrix. "
        "The file's name is the experiment's. "
        "`scales` (`full`, `small`) may lay other values over any key. "
        "[What an experiment asks](matrix.md) has the rules.",
        {
            "Keys": Section(
                Experiment,
                (
                    "workloads/experiments/demo.yml",
                    "workloads/experiments/tls-handshakes.yml",
                    "workloads/experiments/small-servers-2003.yml",
                    "workloads/experiments/tuning-steps.yml",
                ),
            )
        },
    ),
    "workloads": (
        "Workloads",
        f"`workloads/<workload>.yml`, also of {_OWN}: what is sent, and how. `kind` decides which keys there are; "
        "without it, it is `closed`. `variants` makes several workloads of one file. "
        "[How to add one](../how-to/add-a-workload.md); "
        "[what each kind offers](loads.md).",
        {
            "Every kind": Section(
                WorkloadBase,
                ("workloads/site-siege.yml", "workloads/upload.yml", "workloads/index-25-one-core.yml"),
            ),
            "Every kind but `mail`": Section(
                WebWorkload, ("workloads/site-http2.yml", "workloads/tls-handshakes.yml", "workloads/tls-resumed.yml")
            ),
            "`closed`, `rate` and `sweep`": Section(
                SharedHostWorkload,
                ("workloads/guests-sweep.yml", "workloads/neighbour-rate.yml", "workloads/gallery-cold-10.yml"),
            ),
            "`rate`, `sweep`, `search` and `ramp`": Section(OpenLoopWorkload, ("workloads/site-steady.yml",)),
            "`sweep` and `ramp`": Section(SteppedWorkload, ("workloads/site-sweep.yml",)),
            "`kind: closed`": Section(
                ClosedWorkload, ("workloads/site-http2.yml", "workloads/page.yml", "workloads/neighbour-closed.yml")
            ),
            "`kind: rate`": Section(RateWorkload, ("workloads/site-rate.yml", "workloads/site-share.yml")),
            "`kind: sweep`": Section(SweepWorkload, ("workloads/site-capacity.yml",)),
            "`kind: search`": Section(SearchWorkload, ("workloads/site-search.yml",)),
            "`kind: ramp`": Section(RampWorkload, ("workloads/page-ramp.yml",)),
            "`kind: mail`": Section(MailWorkload, ("workloads/mail-smtp.yml", "workloads/mail-imap.yml")),
        },
    ),
    "sites": (
        "Sites",
        f"`workloads/sites/<site>.yml`, or `sites/` of {_OWN}: what every server serves, either file by file or drawn "
        "from distributions.",
        {
            "Listed file by file": Section(ListedSite, ("workloads/sites/home-2025.yml", "workloads/sites/pages.yml")),
            "Drawn from distributions": Section(
                DrawnSite, ("workloads/sites/office.yml", "workloads/sites/office-2009.yml")
            ),
        },
    ),
    "servers": (
        "Servers",
        f"`server-builds/<server>/server.yml`, or `servers/` of {_OWN}: how a server is installed and started. "
        "`of: <server>` takes over another "
        "one's keys; `{name}` and `{folder}` stand for the server's own. How to add one: "
        "[add a server](../how-to/add-a-server.md).",
        {
            "Keys": Section(
                ServerDefinition,
                (
                    *("server-builds/nginx/server.yml", "server-builds/nginx-ktls/server.yml"),
                    *("server-builds/nginx-upload/server.yml", "server-builds/lighttpd/server.yml"),
                    *("server-builds/h2o/server.yml", "server-builds/lighttz/server.yml"),
                    *("server-builds/thttpd/server.yml", "server-builds/postfix-dovecot/server.yml"),
                ),
            )
        },
    ),
}


def pages() -> dict[str, str]:
    """File name in `docs/reference` → the page, Markdown."""
    documents = {f"{name}.md": "\n".join(_page(*page)) + "\n" for name, page in PAGES.items()}
    return documents | {"columns.md": "\n".join(_columns()) + "\n", "profiles.md": _profiles()}


def own_keys(section: Section, sections: Mapping[str, Section]) -> list[str]:
    """The keys that a section lists: those of its model, without those that the section of a base lists."""
    model = section.model
    bases = [other.model for other in sections.values() if other.model in model.__mro__[1:]]
    inherited = {key for base in bases for key in base.model_fields} - set(model.__annotations__)
    return [key for key in model.model_fields if key != "name" and key not in inherited]


def _page(title: str, introduction: str, sections: Mapping[str, Section]) -> Iterator[str]:
    yield from (f"# {title}", "", introduction)
    definitions: dict[str, _Schema] = {}
    for heading, section in sections.items():
        schema = section.model.model_json_schema()
        keys = {key: schema["properties"][key] for key in own_keys(section, sections)}
        yield from ("", f"## {heading}", "")
        yield from _table(keys, schema.get("required", []))
        links = (f"[{_example_name(example)}](../../{example})" for example in section.examples)
        yield from ("", f"Example{'s' * (len(section.examples) > 1)}: {', '.join(links)}.")
        definitions |= {name: part for name, part in schema.get("$defs", {}).items() if "properties" in part}
    for name, part in definitions.items():
        yield from ("", f"## {name}", "", " ".join(part.get("description", "").split()), "")
        yield from _table(part["properties"], part.get("required", []))


def _example_name(example: str) -> str:
    """Name of an example: that of its file or, for a server, of its folder."""
    path = Path(example)
    return path.parent.name if path.name == "server.yml" else path.name


def _table(properties: Mapping[str, _Schema], required: list[str]) -> Iterator[str]:
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    for key, schema in properties.items():
        default = "(required)" if key in required else _default(schema.get("default"))
        yield f"| `{key}` | {_value(schema)} | {default} | {schema['description']} |"


def _default(value: object) -> str:
    return "" if value in (None, [], {}) else f"`{_text(value)}`"


def _text(value: object) -> str:
    """A value as written in YAML."""
    return value if isinstance(value, str) else json.dumps(value)


def _value(schema: _Schema) -> str:
    """Allowed values in words: kinds, choices, limits, a link to a mapping's own table."""
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
    """Every column of every table, from the schemas in results/schema."""
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
    """The page of guest profiles, from the file of the defaults: its keys, and its comments as their meanings."""
    text = (VM_IMAGES / "defaults.yml").read_text(encoding="utf-8")
    meanings = {
        key: " ".join(comment.replace("# ", "").split())
        for comment, key in re.findall(r"^((?:# .*\n)+)(\w+):", text, re.MULTILINE)
    }
    defaults: dict[str, Any] = parse_yaml(text)
    rows = [
        "| key | value | default | meaning |",
        "|---|---|---|---|",
        "| `description` | text |  | what it is, one sentence |",
        "| `of` | list of texts |  | profiles that it builds on |",
        *(f"| `{key}` | {_profile_value(key, value)} | {meanings[key]} |" for key, value in defaults.items()),
    ]
    return (
        f"# Guest profiles\n\n`vm-images/guests/<profile>.yml`, or `environments/` of {_OWN}: what a guest is made of. "
        "`of: [profiles]` builds on "
        "others. Every value but those of `of`, `cmdline` and `needs` may be a mapping `{kvm: …, tcg: …}`, and may use "
        "Jinja2. How to write one: [add a guest profile](../how-to/add-a-guest-profile.md); "
        "[guests](../guests.md) lists the profiles.\n\n## Keys\n\n" + "\n".join(rows) + "\n\n## Defaults\n\n"
        "`vm-images/defaults.yml`. Values may use what the guest was given and the keys above them.\n\n"
        f"```yaml\n{text}```\n"
    )


def _profile_value(key: str, default: object) -> str:
    """The kind and the default of a key, as two cells; a long default is a link to the file below the table."""
    kinds: Mapping[type, str] = {int: "whole number, or a text that names one", list: "list of texts"}
    kind = kinds.get(type(default), "text")
    shown = str(default) if isinstance(default, int) or (isinstance(default, str) and "\n" not in default) else ""
    return f"{kind} | " + (f"`{shown}`" if shown else "" if default in ("", []) else "[below](#defaults)")


def main() -> None:
    """Write every page into the folder given on the command line."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
