"""Load tools: a module or folder for each, found by listing this folder; each has an Adapter called TOOL."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

from vmtoll.loadgen.base import Adapter, ClosedLoad, Command, MailLoad, OpenLoad, Output, ToolLoad, ToolResult
from vmtoll.model.errors import ToolError

TOOLS_DIR = Path(__file__).parent


def names(folder: Path = TOOLS_DIR) -> list[str]:
    """The names of all tools."""
    modules = [p.stem for p in folder.glob("*.py") if p.stem not in {"__init__", "base"}]
    return sorted([*modules, *(p.parent.name for p in folder.glob("*/__init__.py"))])


@cache
def _load(name: str, folder: Path) -> Adapter:
    module_file, package_file = folder / f"{name}.py", folder / name / "__init__.py"
    file = module_file if module_file.exists() else package_file
    spec = importlib.util.spec_from_file_location(f"vmtoll.loadgen.{name}", file)
    if spec is None or spec.loader is None:
        raise ToolError(f"unknown load tool {name!r}; available: {', '.join(names(folder))}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    tool = getattr(module, "TOOL", None)
    if not isinstance(tool, Adapter):
        raise ToolError(f"{file}: TOOL: is missing; an adapter ends with TOOL = Adapter(…)")
    return tool


def get(name: str, folder: Path = TOOLS_DIR) -> Adapter:
    """The adapter of the tool `name`. Raises ToolError if there is none."""
    if name not in names(folder):
        raise ToolError(f"unknown load tool {name!r}; available: {', '.join(names(folder))}")
    return _load(name, folder)


def packages() -> list[str]:
    """Debian packages that contain load tools."""
    return sorted({package for name in names() if (package := get(name).package)})


def masked_units() -> list[str]:
    """Systemd units of these packages that must not start."""
    return sorted({unit for name in names() for unit in get(name).masked_units})


__all__ = [
    "Adapter", "ClosedLoad", "Command", "MailLoad", "OpenLoad", "Output", "ToolError", "ToolLoad", "ToolResult", "get",
    "masked_units", "names", "packages",
]  # fmt: skip
