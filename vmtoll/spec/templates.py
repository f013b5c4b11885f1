"""Evaluate templates in an inventory's variables with Ansible itself, as its connections do."""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vmtoll import children
from vmtoll.model.errors import InventoryError

_TEMPLATE = re.compile(r"{{|{%")
_PREFIXES = ("ansible_", "vmtoll_")
# What the play prints for a template that uses an undefined variable.
_UNDEFINED = "vmtoll: undefined"
_ANSWER = re.compile(r"vmtoll<([A-Za-z0-9+/=]+)>")


def evaluate(path: Path, data: Mapping[str, Any], limit_s: float = 120.0) -> None:
    """Replace templates in the variables of the hosts (`ansible-inventory --list`) by their values, in place.

    `ansible-inventory` prints templates as they are written. A local play asks Ansible for their values and connects
    to no machine. Raises InventoryError for a template without a value until a machine is asked, such as one of facts.
    """
    hosts: Mapping[str, dict[str, Any]] = data.get("_meta", {}).get("hostvars", {})
    names_by_host = {
        host: names
        for host, variables in hosts.items()
        if (names := [name for name, value in variables.items() if name.startswith(_PREFIXES) and _is_template(value)])
    }
    if not names_by_host:
        return
    with tempfile.TemporaryDirectory(prefix="vmtoll-templates-") as folder:
        play = Path(folder, "play.yml")
        play.write_text(yaml.safe_dump(_play(names_by_host)), encoding="utf-8")
        environment = {
            **os.environ, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_LOCALHOST_WARNING": "false",
        }  # fmt: skip
        with children.command(environment) as marked:
            done = subprocess.run(
                [Path(sys.executable).parent / "ansible-playbook", "-i", path, play], capture_output=True, text=True,
                timeout=limit_s, check=False, stdin=subprocess.DEVNULL, env=marked,
            )  # fmt: skip
    answers = [json.loads(base64.b64decode(text)) for text in _ANSWER.findall(done.stdout)]
    values = {answer["host"]: answer["values"] for answer in answers}
    for host, names in names_by_host.items():
        if host not in values:
            raise InventoryError(f"{path}: {host}: {_error_text(done.stdout + done.stderr, host)}")
        for name in names:
            if (value := values[host][name]) == _UNDEFINED:
                raise InventoryError(f"{path}: {host}: {name} is {hosts[host][name]!r}, which {_WITHOUT_VALUE}")
            hosts[host][name] = value


_WITHOUT_VALUE = (
    "has no value before a machine is asked: facts and what plays register are not known yet; write the value itself"
)


def _is_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_template, value.values()))
    return any(map(_is_template, value)) if isinstance(value, list) else bool(_TEMPLATE.search(str(value)))


def _play(names_by_host: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """A play that prints each host's values without a connection, as text that no callback of Ansible's breaks up."""
    values = (
        "{% set values = {} %}{% for name in names_by_host[inventory_hostname] %}"
        "{% set _ = values.update({name: lookup('ansible.builtin.vars', name, default=undefined_value)"
        " | default(undefined_value)}) %}{% endfor %}"
        "{{ 'vmtoll<' ~ ({'host': inventory_hostname, 'values': values} | to_json | b64encode) ~ '>' }}"
    )
    variables = {"names_by_host": dict(names_by_host), "undefined_value": _UNDEFINED}
    task = {"ansible.builtin.debug": {"msg": values}}
    return [{"hosts": list(names_by_host), "gather_facts": False, "vars": variables, "tasks": [task]}]


def _error_text(printed: str, host: str) -> str:
    """Ansible's error about a host whose values it could not print, and the way out."""
    failure = re.search(rf"^fatal: \[{re.escape(host)}\].*?=> (\{{.*\}})$", printed, re.MULTILINE)
    cause = str(json.loads(failure[1]).get("msg", "")) if failure else ""
    if not cause:
        error = re.search(r"^\[?ERROR\]?: (.*)$", printed, re.MULTILINE)
        cause = error[1] if error else "Ansible cannot evaluate its templates"
    cause = re.sub(r"^(Task failed: )?(Error processing keyword '\w+': )?", "", " ".join(cause.split())).rstrip(".")
    facts = ", and facts are not known before a machine is asked" if cause.endswith("is undefined") else ""
    return f"{cause}{facts}; correct the template, or write the value itself"
