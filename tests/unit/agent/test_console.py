"""A guest's console: which panic counts, and what of it is shown."""

import os
import time
from pathlib import Path

import pytest

from vmtoll.agent.console import panic, wait_until_booted
from vmtoll.agent.domains import _CONSOLE

# The words of a panic in a guest of an emulated host, without its addresses.
PANIC = """\
[    0.000000] Linux version 6.12.118+deb13-amd64
[  OK  ] Reached target multi-user.target - Multi-User System.
[  217.113218] Oops: general protection fault
[  217.116604] RIP: 0010:__schedule
[  217.118113] EFLAGS: 82fef622
[  217.119402] RAX: 82fcf666
[  217.134005] Kernel panic - not syncing: Fatal exception in interrupt
[  217.135913] Kernel Offset: disabled
[  217.139240] ---[ end Kernel panic - not syncing: Fatal exception in interrupt ]---
"""
# Of a kernel of Debian 13 that QEMU 7.2 started without a disk, in part.
NO_DISK = """\
[   29.323712] /dev/root: Can't lookup blockdev
[   29.474438] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)
[   29.474983] CPU: 0 UID: 0 PID: 1 Comm: swapper/0 Not tainted 6.12.118+deb13-amd64 #1  Debian 6.12.118-1
[   29.475647] Call Trace:
[   29.497913]  vpanic+0xc5/0x283
[   29.498070]  panic+0x6c/0x6c
[   29.498482]  prepare_namespace+0x1e7/0x230
[   29.499824]  </TASK>
[   29.521976] ---[ end Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0) ]---
"""
SENTENCE = "[  217.134005] Kernel panic - not syncing: Fatal exception in interrupt; its console ends with: "
LONG_AGO_S = 60


@pytest.fixture
def console(tmp_path: Path) -> Path:
    return tmp_path / "web-console.log"


def written(console: Path, text: str, ago_s: float = LONG_AGO_S) -> Path:
    console.write_bytes(text.replace("\n", "\r\n").encode())
    os.utime(console, (time.time() - ago_s,) * 2)
    return console


def test_a_panic_has_the_consoles_last_lines(console: Path) -> None:
    shown = panic(written(console, PANIC))
    assert shown.startswith(SENTENCE)
    assert shown.removeprefix(SENTENCE).split(" | ") == PANIC.splitlines()[-5:]


def test_the_panic_of_a_kernel_without_a_disk(console: Path) -> None:
    """Its first line is that of the panic, not the one that ends it."""
    first, _, last = panic(written(console, NO_DISK)).partition("; its console ends with: ")
    assert first.endswith("Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)")
    assert last.endswith("---[ end Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0) ]---")


def test_no_panic(console: Path) -> None:
    assert panic(console) == "", "there is no console"
    assert panic(written(console, PANIC.replace("Kernel panic - ", ""))) == ""


@pytest.mark.parametrize("later", ["Welcome to Debian\n", "[    0.000000] Linux version\n", "[   12.2] eth0: up\n"])
def test_a_kernel_that_booted_after_it_has_not_panicked(console: Path, later: str) -> None:
    """Also the one that writes a crash dump."""
    assert panic(written(console, PANIC + later)) == ""


def test_a_kernel_that_boots_by_itself_after_a_panic_is_left_alone(console: Path) -> None:
    assert panic(written(console, f"{PANIC}[  217.2] Rebooting in 30 seconds..\n")) == ""


def test_a_console_that_is_still_written_is_left_alone(console: Path) -> None:
    assert panic(written(console, PANIC, ago_s=1)) == ""


def test_the_panic_of_an_earlier_start_does_not_count(console: Path) -> None:
    """The console is appended to, and the guest that was started again has not printed anything."""
    assert panic(written(console, PANIC), since=time.time() - LONG_AGO_S / 2) == ""
    assert panic(written(console, PANIC), since=time.time() - LONG_AGO_S * 2)


def test_without_times_in_the_kernels_lines(console: Path) -> None:
    text = "Kernel panic - not syncing: Attempted to kill init!\nCPU: 0 PID: 1\n"
    assert panic(written(console, text)).endswith("not syncing: Attempted to kill init! | CPU: 0 PID: 1")
    assert panic(written(console, f"{text}Linux version 6.12\n")) == ""


def test_colors_are_left_out(console: Path) -> None:
    written(console, "\x1b[0;1;31mA start job is running\x1b[0m\n")
    assert wait_until_booted(console, 0).endswith("shown nothing new for 0 s; it ends with: A start job is running")


@pytest.mark.parametrize(
    "words",
    [
        "<devices>\n<serial type='file'>\n  <source path='/g/web-console.log'/>\n</serial>",
        "<console type='file' tty='/dev/pts/1'>\n<source path='/g/web-console.log' append='on'/>",
        "qemu-system-x86_64\0-serial\0file:/g/web-console.log\0-m\0512",
        "qemu\0-chardev\0file,id=s0,path=/g/web-console.log,append=on\0",
    ],
)
def test_where_the_console_is(words: str) -> None:
    found = _CONSOLE.search(words)
    assert found
    assert [path for path in found.groups() if path] == ["/g/web-console.log"]
    assert not _CONSOLE.search("<serial type='pty'>\n<source path='/dev/pts/3'/>")
