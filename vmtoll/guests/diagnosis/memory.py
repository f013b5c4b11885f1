"""Memory: the size of its pages."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from vmtoll.guests.diagnosis.definition import memory_bytes, shown
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.model.diagnosis import Edit, State, Step, Tuning


def huge_pages(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    host: dict[str, int | str] = {"size_kib": facts["hugepages"]["size_kib"], "free": facts["hugepages"]["free"]}
    if domain.find("memoryBacking/hugepages") is not None:
        yield Step(Tuning.HUGE_PAGES, State.TAKEN, host=host)
        return
    host["needed"] = -(-memory_bytes(domain) // (1024 * facts["hugepages"]["size_kib"]))
    host["transparent"] = facts.get("transparent_hugepages") or ""
    changes = (Edit("./memoryBacking/hugepages", ""),)
    yield Step(Tuning.HUGE_PAGES, State.LACKING, "", "", shown(domain, changes), host, changes)
