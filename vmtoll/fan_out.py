"""Commands of many cells, started by Ansible: cells at the same time, the commands of one after each other."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtoll.paths import PLAYBOOKS
from vmtoll.shell import UserError
from workloads.runner.results import write_durably

FORKS = 20  # as playbooks/ansible.cfg has it

Task = tuple[str, str]  # a cell, and an experiment in it


@dataclass(frozen=True)
class Command:
    """What is run for a task, and the file that gets all it prints."""

    argv: Sequence[str]
    log: Path


# What Ansible prints when a command has ended: `changed: [cell_a] => (item=demo)`, `failed: [cell_b] (item=demo) …`.
_ENDED = re.compile(r"^(?:changed|failed): \[([^\]]+)\](?: =>)? \(item=([^)]+)\)")


def fan_out(commands: Mapping[Task, Command], folder: Path, forks: int = FORKS) -> Iterator[Task]:
    """Run them all, as many cells at once as there are forks; yield each task when its command has ended, however.

    `folder` gets Ansible's inventory of cells and its log. Raises UserError when Ansible itself fails.
    """
    inventory, log = folder / "cells.json", folder / "ansible.log"
    write_durably(inventory, json.dumps(_inventory(commands), indent=1).encode())
    argv = [Path(sys.executable).parent / "ansible-playbook", "-i", inventory, PLAYBOOKS / "campaign.yml"]
    process = subprocess.Popen(
        [str(word) for word in (*argv, "--forks", forks)],
        env=os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    ended = 0
    with log.open("a") as copy:
        for line in process.stdout:
            copy.write(line)
            copy.flush()
            if found := _ENDED.match(line):
                ended += 1
                yield found[1], found[2]
    if process.wait() and ended < len(commands):
        raise UserError(
            f"Ansible started {ended} of {len(commands)} commands and ended with {process.returncode}: {log}"
        )


def _inventory(commands: Mapping[Task, Command]) -> dict[str, Any]:
    hosts: dict[str, Any] = {}
    for (cell, experiment), command in commands.items():
        command.log.parent.mkdir(parents=True, exist_ok=True)
        run = {"experiment": experiment, "argv": list(command.argv), "log": str(command.log.absolute())}
        hosts.setdefault(cell, {"campaign_runs": []})["campaign_runs"].append(run)
    return {"all": {"hosts": hosts}}
