"""The plugin, under a QEMU that executes what a test lists: levels, kinds, repeats, windows, the profile."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vmtoll.builds import counting
from vmtoll.counting.windows import Window, read_progress, read_windows
from vmtoll.paths import PROJECT

KERNEL, SERVER, CLIENT = 0xFFFFFFFF81000000, 0x400000, counting.CLIENT_AT[0] + 0x1000
NOP, VMRUN, REP_MOVSB = "90", "0f01d8", "f3a4"
Instruction = tuple[int, str, int]  # address, code, place
BEGIN, END = ((CLIENT, f"0f1f80{mark}746b6d", 0) for mark in ("08", "09"))
ENTER, EXIT = (KERNEL, VMRUN, 0x7000), (KERNEL + 3, NOP, 0x7003)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, and the QEMU that loads it."""
    folder = tmp_path_factory.mktemp("programs")
    for name, flags, source in (
        ("counter", ["-shared", "-fPIC", "-fvisibility=hidden"], counting.RECIPE / "counter.c"),
        ("qemu", ["-rdynamic"], PROJECT / "tests/support/fake_qemu.c"),
    ):
        subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-o", folder / name, source], check=True)
    return folder


@pytest.fixture
def run(programs: Path, tmp_path: Path) -> Callable[..., list[Window]]:
    """Execute instructions; return the windows that the plugin wrote."""

    def execute(*instructions: Instruction, options: str = "") -> list[Window]:
        text = "".join(f"{address:x} {code} {place:x}\n" for address, code, place in instructions)
        words = [f"out={tmp_path}/counts", "client=10000000-20000000", *options.split()]
        subprocess.run([programs / "qemu", programs / "counter", *words], input=text, text=True, check=True)
        return read_windows((tmp_path / "counts").read_bytes())

    return execute


def nops(address: int, number: int) -> list[Instruction]:
    return [(address + each, NOP, 0) for each in range(number)]


def test_instructions_belong_to_the_level_and_kind_that_ran_them(run: Callable[..., list[Window]]) -> None:
    (window,) = run(
        *nops(KERNEL, 50), BEGIN, *nops(KERNEL, 7), *nops(SERVER, 5), *nops(CLIENT, 3),
        ENTER, *nops(KERNEL, 11), *nops(SERVER, 13), EXIT, ENTER, *nops(KERNEL, 1), EXIT, END, *nops(KERNEL, 50),
    )  # fmt: skip
    # VMRUN itself counts for the guest, and the mark that begins for the client: callbacks run first.
    assert window == Window(
        host_kernel=7 + 2, host_user=5, client=3 + 1, guest_kernel=11 + 1 + 2, guest_user=13, repeats=0, entries=2
    )
    assert window.instructions == 9 + 5 + 14 + 13


def test_what_follows_vmrun_in_the_guests_own_memory_stays_the_guests(run: Callable[..., list[Window]]) -> None:
    (window,) = run(BEGIN, ENTER, (KERNEL + 3, NOP, 0x9003), *nops(KERNEL, 4), EXIT, END)
    assert (window.guest_kernel, window.host_kernel) == (1 + 1 + 4, 1)


def test_a_repeated_instruction_counts_once_until_something_else_runs(run: Callable[..., list[Window]]) -> None:
    copy = (KERNEL, REP_MOVSB, 0)
    (window,) = run(BEGIN, *[copy] * 4096, *nops(SERVER, 1), *[copy] * 10, END)
    assert (window.host_kernel, window.host_user, window.repeats) == (2, 1, 4095 + 9)


@pytest.mark.parametrize(
    ("code", "is_repeated"),
    [
        ("f348a5", True),
        ("f2ae", True),
        ("66f3a5", True),
        ("f36c", True),
        ("f30f1efa", False),
        ("a4", False),
        ("f390", False),
    ],
)
def test_rep_is_known_by_its_bytes(run: Callable[..., list[Window]], code: str, is_repeated: bool) -> None:
    (window,) = run(BEGIN, *[(KERNEL, code, 0)] * 3, END)
    assert (window.host_kernel, window.repeats) == ((1, 2) if is_repeated else (3, 0))


def test_only_the_client_marks_and_an_open_window_is_left_out(run: Callable[..., list[Window]], tmp_path: Path) -> None:
    windows = run(BEGIN, (SERVER, BEGIN[1], 0), *nops(KERNEL, 2), END, BEGIN, *nops(KERNEL, 9))
    assert [(window.host_kernel, window.host_user) for window in windows] == [(2, 1)]
    progress = read_progress((tmp_path / "counts").read_bytes())
    assert (progress.marks, progress.executed) == (3, 15)


def test_the_profile_has_the_windows_instructions_by_level_and_place(
    run: Callable[..., list[Window]], tmp_path: Path
) -> None:
    run(
        *nops(KERNEL + 0x40, 9), BEGIN, *nops(KERNEL + 0x40, 5), *nops(KERNEL + 0x51, 2),
        ENTER, *nops(KERNEL + 0x40, 3), *[(KERNEL + 0x60, REP_MOVSB, 0)] * 8, EXIT, END, BEGIN, *nops(SERVER, 1), END,
        options=f"profile={tmp_path}/profile",
    )  # fmt: skip
    first = {tuple(line.split()) for line in (tmp_path / "profile.0").read_text().splitlines()}
    host = {("0", f"{KERNEL + 0x40:x}", "5"), ("0", f"{KERNEL + 0x50:x}", "2"), ("0", f"{KERNEL:x}", "2")}
    guest = {("1", f"{KERNEL + 0x40:x}", "3"), ("1", f"{KERNEL + 0x60:x}", "1")}
    assert first - {("0", f"{CLIENT:x}", "1")} == host | guest
    assert f"0 {SERVER:x} 1" in (tmp_path / "profile.1").read_text().splitlines()


def test_the_plugin_refuses_options_that_would_count_nothing(programs: Path) -> None:
    done = subprocess.run(
        [programs / "qemu", programs / "counter", "client=1-2"], input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "needs out=" in done.stderr
