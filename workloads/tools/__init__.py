"""Load tools: one module each, found by listing this folder.

An adapter has `PACKAGE` (the Debian package), `CAN_CLOSE` (whether it can do without keep-alive), `TICK_S` (the
resolution of its times), `LOCKSTEP` (whether all its users start at the first line of the URL list), `command` (a
load in, a command line and its files out) and `parse` (what the tool printed in, a result out; pure).
"""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from workloads.tools.base import Command, Load, Output, ToolError, ToolResult

TOOLS_DIR = Path(__file__).parent


class Adapter(Protocol):
    """What a module of this folder offers."""

    PACKAGE: str
    CAN_CLOSE: bool
    TICK_S: float
    LOCKSTEP: bool

    def command(self, load: Load) -> Command: ...

    def parse(self, load: Load, output: Output) -> ToolResult: ...


def names(folder: Path = TOOLS_DIR) -> list[str]:
    """The tools there are."""
    return sorted(p.stem for p in folder.glob("*.py") if p.stem not in {"__init__", "base"})


@cache
def _load(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"workloads.tools.{name}", folder / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ToolError(f"no tool {name!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    return module


def get(name: str, folder: Path = TOOLS_DIR) -> Adapter:
    """The adapter called `name`. Raises ToolError when there is none."""
    if name not in names(folder):
        raise ToolError(f"no tool {name!r}; there are: {', '.join(names(folder))}")
    return cast(Adapter, _load(name, folder))


__all__ = ["Adapter", "Command", "Load", "Output", "ToolError", "ToolResult", "get", "names"]
