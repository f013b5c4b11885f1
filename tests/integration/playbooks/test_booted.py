"""A guest that boots is waited for as long as its console grows."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from vmtoll.agent import console

BOOTED = console.__file__
# As systemd of Debian 13 and 12 print it.
ENDS = [
    "[\x1b[0;32m  OK  \x1b[0m] Reached target \x1b[0;1;39mmulti-user.target\x1b[0m - Multi-User System.\r\n",
    "[  OK  ] Reached target Multi-User System.\r\n",
]


PANIC = [
    "[    4.6] Kernel panic - not syncing: No working init found.",
    "[    4.7] CPU: 0",
    "[    4.8] ---[ end Kernel panic - not syncing ]---",
]


def booted(console: Path, silence_s: int, *end: str | Path) -> subprocess.CompletedProcess[str]:
    argv = ["python3", BOOTED, console, str(silence_s), *end]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("end", ENDS)
def test_a_slow_guest_is_waited_for_longer_than_it_may_be_silent(tmp_path: Path, end: str) -> None:
    console, silence_s, lines = tmp_path / "console.log", 3, 5

    def boot() -> None:
        for line in [*["Starting something…\r\n"] * lines, end]:
            time.sleep(1)
            with console.open("a") as stream:
                stream.write(line)

    guest, began = threading.Thread(target=boot), time.monotonic()
    guest.start()
    assert booted(console, silence_s).returncode == 0
    guest.join()
    assert time.monotonic() - began > silence_s


def test_a_guest_that_hangs_is_reported_with_the_last_lines_of_its_console(tmp_path: Path) -> None:
    console = tmp_path / "web-console.log"
    console.write_text("Welcome to Debian\r\nA start job is running\r\n")
    done = booted(console, 1)
    assert done.returncode == 1
    assert "guest web hangs: " in done.stderr and " for 1 s; " in done.stderr
    assert "A start job is running" in done.stderr


def test_a_kernel_that_panicked_is_named_and_ended_long_before_one_that_may_be_slow(tmp_path: Path) -> None:
    console, began = tmp_path / "web-console.log", time.monotonic()
    console.write_text("".join(f"{line}\r\n" for line in PANIC))
    done = booted(console, 300, "touch", tmp_path / "ended")
    assert done.returncode == 1
    assert done.stderr.strip() == f"the guest web does not boot: {PANIC[0]}; its console ends with: {' | '.join(PANIC)}"
    assert time.monotonic() - began < 60
    assert (tmp_path / "ended").exists(), "the guest was ended"


def test_a_guest_without_a_console_is_reported(tmp_path: Path) -> None:
    assert "No such file" in booted(tmp_path / "none", 1).stderr
