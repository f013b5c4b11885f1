"""Benchmarks of time and memory, and simulations of error rates."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def write_measured(page: Path, name: str, text: str) -> None:
    """Put text between `<!-- measured: NAME -->` and the next `<!-- end -->` of a document. Raises ValueError."""
    marker = re.compile(rf"(<!-- measured: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    changed, found = marker.subn(lambda match: f"{match[1]}{text}\n{match[2]}", page.read_text("utf-8"))
    if not found:
        raise ValueError(f"{page}: it has no place for `measured: {name}`")
    page.write_text(changed, "utf-8")


@contextmanager
def fresh_process() -> Iterator[tuple[Path, Callable[..., Any]]]:
    """Yield a temporary folder, and a function that calls another one in a fresh process and returns its result."""
    with (
        TemporaryDirectory(prefix="vmtoll-bench-") as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        yield Path(folder), lambda function, *arguments: pool.submit(function, *arguments).result()


def timed(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> tuple[float, float, float, Result]:
    """Call a function; return seconds, seconds of CPU, this process's peak memory in MB (10⁶ bytes), and its result."""
    begin, cpu_begin = time.monotonic(), time.process_time()
    result = function(*arguments, **options)
    return time.monotonic() - begin, time.process_time() - cpu_begin, peak_mb(), result


def peak_mb(pid: int | str = "self") -> float:
    """The peak memory of this or another process in MB (10⁶ bytes), from /proc/<pid>/status.

    `ru_maxrss` is not used: through fork and exec, it keeps the peak of the process that started this one.
    """
    kib = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert kib is not None
    return int(kib[1]) * 1024 / 1e6
