"""The generated reference: every key of what users write has an example in a shipped file."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from vmtoll.paths import PROJECT
from vmtoll.sites import load_site
from vmtoll.spec.catalog import Registry
from vmtoll.spec.reference import PAGES, Section, own_keys
from vmtoll.spec.server import read_servers
from vmtoll.spec.workload import load_workloads, names

REGISTRY = Registry()
# Key → why no shipped file has it.
WITHOUT_EXAMPLE = {
    "ClosedWorkload.kind": "a file without `kind` is a closed loop",
    "SteppedWorkload.rates_rps": "the shipped sweeps are for any machine: `shares`",
    "SearchWorkload.between_rps": "the shipped search is for any machine: `between_shares`",
    "Neighbour.rate_rps": "the shipped neighbours are for any machine: `share`",
    "Neighbour.tool": "the shipped neighbours are sent by the default tool",
}
SECTIONS = [
    pytest.param(section, sections, id=heading)
    for *_, sections in PAGES.values()
    for heading, section in sections.items()
]


def given(value: object) -> Iterator[str]:
    """Each key that a document gives, as `Model.key` of the model that declares it."""
    if isinstance(value, BaseModel):
        for key in value.model_fields_set:
            owner = next(model for model in type(value).__mro__ if key in vars(model).get("__annotations__", {}))
            yield f"{owner.__name__}.{key}"
            yield from given(getattr(value, key))
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from given(each)


def declared(model: type[BaseModel]) -> Iterator[str]:
    """Each key that a model and those inside of it have."""
    schema = model.model_json_schema()
    for name, part in {model.__name__: schema, **schema.get("$defs", {})}.items():
        yield from (f"{name}.{key}" for key in part.get("properties", {}) if key != "name")


def shipped() -> dict[str, list[BaseModel]]:
    """Page → every document of its kind."""
    workloads = [workload for name in names(REGISTRY) for workload in load_workloads(name, REGISTRY).values()]
    sites = [load_site(REGISTRY.site_file(name)) for name in REGISTRY.sites()]
    return {"workloads": list(workloads), "sites": list(sites), "servers": list(read_servers())}


def test_each_key_of_workloads_sites_and_servers_has_an_example() -> None:
    documents = shipped()
    lacking = set()
    for page, of_page in documents.items():
        has = {key for document in of_page for key in given(document)}
        for section in PAGES[page][2].values():
            own = set(own_keys(section, PAGES[page][2]))
            owners = {model.__name__ for model in section.model.__mro__}
            for key in declared(section.model):
                model, _, name = key.partition(".")
                if model == section.model.__name__ and name in own:
                    lacking |= {key} if not any(f"{owner}.{name}" in has for owner in owners) else set()
                elif model != section.model.__name__ and key not in has:
                    lacking.add(key)
    assert lacking == set(WITHOUT_EXAMPLE)


@pytest.mark.parametrize(("section", "sections"), SECTIONS)
def test_each_section_names_examples_that_have_its_keys(section: Section, sections: dict[str, Section]) -> None:
    keys = own_keys(section, sections)
    texts = {example: (PROJECT / example).read_text(encoding="utf-8") for example in section.examples}
    assert texts
    assert [example for example, text in texts.items() if not any(f"{key}:" in text for key in keys)] == []


@pytest.mark.parametrize(
    ("page", "keys"),
    [
        ("workloads", {"tls", "tls_resumption", "http", "streams", "method", "body_bytes"}),
        ("servers", {"tls", "not_in", "uploads"}),
        ("sites", {"gzip"}),
    ],
)
def test_the_examples_have_the_keys_of_tls_uploads_and_variants(page: str, keys: set[str]) -> None:
    files = [PROJECT / example for section in PAGES[page][2].values() for example in section.examples]
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    assert {key for key in keys if f"{key}:" not in texts} == set()
