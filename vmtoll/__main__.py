"""The program vmtoll; until its modules are loaded, ^C ends it silently, as a traceback would tell nothing."""

import os
import signal
from pathlib import Path
from typing import NoReturn

_INTERRUPTED = 130  # exit code, as of a program that SIGINT ends


def avoid_emulated_avx2(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Keep numpy, not loaded yet, from AVX2 where QEMU emulates the CPU: QEMU 7.2 gets its argsort wrong, or crashes.

    A value that the user has set stays. Source of the variable: numpy's reference, CPU/SIMD optimizations, at runtime.
    """
    from vmtoll.model.hardware import TCG_MODEL  # noqa: PLC0415 (^C is heeded before)

    if cpuinfo.exists() and TCG_MODEL in cpuinfo.read_text():
        os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V3")


def main() -> NoReturn:
    """Load the commands and run the one that was typed."""
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where a shell has ^C ignored
    if heeds:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    avoid_emulated_avx2()
    from vmtoll.cli import main as run  # noqa: PLC0415 (half a second)

    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
