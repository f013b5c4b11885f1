"""The program vmtoll; while it loads its modules, ^C ends it silently, because a traceback would be of no use."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

_INTERRUPTED = 130  # exit code, as for a program that SIGINT ends


def avoid_emulated_avx2(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Keep numpy from using AVX2 where QEMU emulates the CPU: under QEMU 7.2 its argsort is wrong, or crashes.

    Call it before numpy is loaded. A value that the user has set stays. Source of the variable: numpy's reference,
    CPU/SIMD optimizations, at runtime.
    """
    from vmtoll.model.hardware import TCG_MODEL  # noqa: PLC0415 (main must set its handler of ^C first)

    if cpuinfo.exists() and TCG_MODEL in cpuinfo.read_text():
        os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V3")


def main() -> NoReturn:
    """Load the commands and run the one that the user typed."""
    handles_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False where a shell ignores ^C
    if handles_interrupt:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    if os.environ.get("_VMTOLL_COMPLETE"):  # a shell asks
        from vmtoll.commands.skeleton import complete  # noqa: PLC0415 (loads no command)

        complete()
    avoid_emulated_avx2()
    from vmtoll import children, cli  # noqa: PLC0415 (takes a tenth of a second)

    cli.load("".join(sys.argv[1:2]))
    children.end_on(signal.SIGTERM, *([signal.SIGINT] if handles_interrupt else []))
    cli.main()


if __name__ == "__main__":
    main()
