"""The program vmtoll; until its modules are loaded, ^C ends it silently, as a traceback would tell nothing."""

import os
import signal
from typing import NoReturn

_INTERRUPTED = 130  # exit code, as of a program that SIGINT ends


def main() -> NoReturn:
    """Load the commands and run the one that was typed."""
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where a shell has ^C ignored
    if heeds:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from vmtoll.cli import main as run  # noqa: PLC0415 (half a second)

    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
