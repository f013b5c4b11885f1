"""An inventory cut into its test beds: read by Ansible once, and written as one small file for each."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmtoll.campaign.testbeds import CELLS_GROUP, Bed
from vmtoll.files import write_durably
from vmtoll.spec.inventory import members


def slice_of(data: Mapping[str, Any], bed: Bed) -> dict[str, Any]:
    """The inventory of one test bed, as Ansible reads it: its machines with all their variables, in all their groups.

    `data`: the output of `ansible-inventory --list`.
    """
    variables, hosts = data.get("_meta", {}).get("hostvars", {}), set(bed.hosts)
    groups = {
        group: {"hosts": dict.fromkeys(inside)}
        for group in data
        if group not in ("_meta", "all", "ungrouped", CELLS_GROUP)
        and (inside := [host for host in members(data, group) if host in hosts])
    }
    cells = {CELLS_GROUP: {"children": {bed.name: {"hosts": dict.fromkeys(bed.hosts)}}}} if bed.name in data else {}
    own = {name: group for name, group in groups.items() if name != bed.name}
    return {"all": {"hosts": {host: variables.get(host, {}) for host in bed.hosts}, "children": own | cells}}


def write_list(beds: Sequence[str], folder: Path) -> Path:
    """Write the names of test beds, one per line, as a file that is named after them; return it.

    Jobs that find their test bed by a number read it still when a later list is written.
    """
    content = "".join(f"{bed}\n" for bed in beds).encode()
    file = folder / f"beds-{hashlib.sha256(content).hexdigest()[:12]}.txt"
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(file, content)
    return file


def write_slices(data: Mapping[str, Any], beds: Sequence[Bed], folder: Path) -> dict[str, Path]:
    """Write each test bed's inventory; return test bed → its file."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {bed.name: folder / f"{bed.name}.json" for bed in beds}
    for bed in beds:
        write_durably(files[bed.name], json.dumps(slice_of(data, bed)).encode() + b"\n")
    return files
