"""Makes a user's own folder: lab.yml, folders for their documents, an experiment to begin with."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vmtoll.files import writing
from vmtoll.folder.machines import LabMachines
from vmtoll.model.errors import InventoryError, UserError
from vmtoll.model.trial import METAL
from vmtoll.paths import FOLDER_FILE
from vmtoll.spec.inventory import read_inventory
from vmtoll.spec.inventory_faults import InventoryData, check_inventory

FOLDERS = ("experiments", "workloads", "sites", "servers", "environments", "results")
FIRST = "first"  # the experiment to begin with
_DRAFT = ".vmtoll-init"
_IGNORED = """\
# Runs stay here; add one that others should read with `git add -f`, or publish it: `vmtoll publish`.
/results/
/site/
# Names paths of this machine.
/sources.yml
"""


def make(folder: Path, machines: LabMachines) -> list[Path]:
    """Make the folder and return its files.

    Raises UserError where it is not empty, InventoryError where lab.yml would not pass; nothing is left behind then.
    """
    folder = folder.absolute()
    check_empty(folder)
    is_new, draft = not folder.exists(), folder / _DRAFT
    texts = _texts(machines)
    try:
        with writing(folder):
            shutil.rmtree(draft, ignore_errors=True)
            for name in FOLDERS:
                (draft / name).mkdir(parents=True)
            for name, text in texts.items():
                (draft / name).write_text(text, encoding="utf-8")
        if not machines.are_none:
            _check(draft / FOLDER_FILE, folder / FOLDER_FILE, machines)
        for name in (*FOLDERS, ".gitignore", FOLDER_FILE):  # which makes it its own folder
            (draft / name).rename(folder / name)
        draft.rmdir()
    except BaseException:
        shutil.rmtree(folder if is_new else draft, ignore_errors=True)
        raise
    return [folder / name for name in texts]


def check_empty(folder: Path) -> None:
    """Raise UserError where a folder holds something, or is a file."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file, not a folder; give another name")
    if folder.is_dir() and any(entry.name != _DRAFT for entry in folder.iterdir()):
        raise UserError(f"{folder}: not empty; give the name of a new folder")


def _texts(machines: LabMachines) -> dict[str, str]:
    """The files of a folder, lab.yml first."""
    texts = {FOLDER_FILE: machines.lab_yml(), ".gitignore": _IGNORED}
    for guest in machines.guests:
        carrier = f" on {machines.kvm_host.name}" if machines.kvm_host else ""
        described = {"description": f"the guest {guest.listed.name if guest.listed else guest.machine.name}{carrier}"}
        texts[f"environments/{guest.environment}.yml"] = yaml.safe_dump(described)
    texts[f"experiments/{FIRST}.yml"] = _experiment(machines)
    return texts


def _experiment(machines: LabMachines) -> str:
    environments = machines.environments or [METAL, "kvm-default"]
    keys: dict[str, Any] = {
        "question": f"what does nginx cost in {' and in '.join(environments[1:])}, compared with {environments[0]}?",
        "environments": environments, "servers": ["nginx"], "workloads": ["site-steady"], "blocks": 8,
        "warmup_s": 0.5, "duration_s": 2.0, "link": "unshaped", "shares_of": "slowest",
    }  # fmt: skip
    if len(environments) == 1:
        floor: Mapping[str, Any] = {"environment": environments[0], "servers": ["nginx"]}
        keys |= {"question": f"how much does {environments[0]} vary by itself?", "noise_floor": floor}
    head = (
        f"# The first run: `vmtoll run {FIRST}`. `vmtoll list` names what can stand here; the keys are in\n"
        "# docs/reference/experiments.md.\n"
    )
    return head + yaml.safe_dump(keys, sort_keys=False, width=110)


def _check(file: Path, final: Path, machines: LabMachines) -> None:
    """Raise InventoryError, with the file's final path, where a run or preflight would refuse lab.yml."""
    try:
        data = InventoryData(read_inventory(file), file)
        check_inventory(data, machines.environments, limited=False, purpose="load")
    except InventoryError as error:
        raise InventoryError(str(error).replace(str(file), str(final))) from None
