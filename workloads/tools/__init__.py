"""Load tools: one module or folder each, found by listing this folder.

An adapter has `command` (a load in, a command line and its files out), `parse` (what the tool printed in, a result
out; pure) and
- `PACKAGE`, the Debian package; None: the Makefile in the tool's folder makes the binary, and the folder's name is
  the program's;
- `CLOSED_LOOP` and `OPEN_LOOP`, whether it knows users (`Load`) and rates (`OpenLoad`);
- `REFUSED_FOR_TAILS`, why its response times at a rate are not to be had or not believed; None: it passes the stall
  test;
- `CAN_CLOSE`, whether it can do without keep-alive;
- `ONE_PAGE`, whether it asks for one page only, which the workload then has to name;
- `TICK_S`, the resolution of its times;
- `LOCKSTEP`, whether all its users start at the first line of the URL list;
- `ONE_HOST`, `AT_RANDOM`, `ENDS`, where it is true: it sends everything to the host of its first URL; it draws its URLs
  at random; it ends at an interrupt with what it has sent so far, and `parse` takes an `Output` that was `ended`;
- `MAIL_PROTOCOLS`, which of those of a mail workload it speaks; a web tool need not say that it speaks none;
- `MASK`, in a line like that of the package: the units of that package, kept from starting.
"""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from workloads.tools.base import AnyLoad, Command, Load, MailLoad, OpenLoad, Output, ToolError, ToolResult

TOOLS_DIR = Path(__file__).parent


class Adapter(Protocol):
    """What a module of this folder offers."""

    PACKAGE: str | None
    CLOSED_LOOP: bool
    OPEN_LOOP: bool
    REFUSED_FOR_TAILS: str | None
    CAN_CLOSE: bool
    ONE_PAGE: bool
    TICK_S: float
    LOCKSTEP: bool

    # A tool is given only the kinds of load that it says it can do.
    def command(self, load: Any) -> Command: ...

    def parse(self, load: Any, output: Output) -> ToolResult: ...


def names(folder: Path = TOOLS_DIR) -> list[str]:
    """The tools there are."""
    modules = [p.stem for p in folder.glob("*.py") if p.stem not in {"__init__", "base"}]
    return sorted([*modules, *(p.parent.name for p in folder.glob("*/__init__.py"))])


@cache
def _load(name: str, folder: Path) -> ModuleType:
    module_file, package_file = folder / f"{name}.py", folder / name / "__init__.py"
    file = module_file if module_file.exists() else package_file
    spec = importlib.util.spec_from_file_location(f"workloads.tools.{name}", file)
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


def one_host(adapter: Adapter) -> bool:
    """Whether all that this tool sends goes to one host."""
    return adapter.ONE_PAGE or bool(getattr(adapter, "ONE_HOST", False))


def at_random(adapter: Adapter) -> bool:
    """Whether this tool draws its URLs at random, so that no file is sure to be asked for once."""
    return bool(getattr(adapter, "AT_RANDOM", False))


def ends(adapter: Adapter) -> bool:
    """Whether this tool can be ended while it sends, and still tells what it sent."""
    return bool(getattr(adapter, "ENDS", False))


def mail_protocols(adapter: Adapter) -> tuple[str, ...]:
    """What this tool speaks to a mail server; nothing, if it is a web tool."""
    return tuple(getattr(adapter, "MAIL_PROTOCOLS", ()))


__all__ = [
    "Adapter",
    "AnyLoad",
    "Command",
    "Load",
    "MailLoad",
    "OpenLoad",
    "Output",
    "ToolError",
    "ToolResult",
    "at_random",
    "ends",
    "get",
    "mail_protocols",
    "names",
    "one_host",
]
