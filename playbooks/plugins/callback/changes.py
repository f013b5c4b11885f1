"""Writes what a playbook changed on each machine, and what failed, as JSON. Ansible 2.19, on the controller."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: changes
type: notification
short_description: Write what a playbook changed on each machine, and what failed, as JSON
description:
  - The file has C(machines), the changes of each by its name, and C(failures) in the order in which they came.
  - A change has the C(task), the C(items) of a loop that changed, and the C(diff) where Ansible runs with --diff.
options:
  file:
    description: The file to write.
    type: path
    required: true
    env: [{name: VMTOLL_CHANGES_FILE}]
"""


_FAREWELL = re.compile(r"^(?:Shared c|C)onnection to \S+ closed\.\s*$", re.MULTILINE)


class CallbackModule(CallbackBase):
    """Collects the changes and failures of all tasks, and writes them at the playbook's end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "changes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._changes: dict[str, list[dict[str, Any]]] = {}
        self._failures: list[dict[str, str]] = []

    def v2_runner_on_ok(self, result: Any) -> None:
        changes = self._changes.setdefault(result.host.get_name(), [])
        if result.result.get("changed"):
            changes.append(_change(result.task.get_name(), result.result))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._fail(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._fail(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        machines = {name: self._changes.get(name, []) for name in sorted(stats.processed)}
        content = {"machines": machines, "failures": self._failures}
        Path(self.get_option("file")).write_text(json.dumps(content, default=str), encoding="utf-8")

    def _fail(self, result: Any) -> None:
        name, task = result.host.get_name(), result.task.get_name()
        self._changes.setdefault(name, [])
        self._failures.append({"machine": name, "task": task, "message": _message(result.result)})


def _change(task: str, answer: dict[str, Any]) -> dict[str, Any]:
    changed = [item for item in answer.get("results", []) if item.get("changed")]
    items = [item.get("_ansible_item_label", item.get("item")) for item in changed]
    diffs = [diff for part in (changed or [answer]) for diff in _diffs(part.get("diff"))]
    return {"task": task} | ({"items": items} if items else {}) | ({"diff": diffs} if diffs else {})


def _diffs(diff: Any) -> list[Any]:
    return [part for part in (diff if isinstance(diff, list) else [diff]) if part]


def _message(answer: dict[str, Any]) -> str:
    """The message of a failed task; for a loop, of its first item that failed; for a command, its last line."""
    part = next((item for item in answer.get("results", []) if item.get("failed") or item.get("unreachable")), answer)
    # Over ssh a script has a terminal: its errors come with its output, and ssh's own farewell as the error.
    error = _FAREWELL.sub("", str(part.get("stderr") or "")).strip()
    printed = error or str(part.get("stdout") or "").strip()
    message = str(part.get("msg") or "")
    return printed.rpartition("\n")[2] if printed and message.startswith("non-zero return code") else message
