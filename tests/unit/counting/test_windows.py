"""What the counting machine writes, read: windows, progress, exits by reason."""

from array import array

import pytest

from vmtoll.counting.windows import MAGIC, Progress, read_exits, read_progress, read_windows
from vmtoll.model.errors import UserError

# As Linux 6.12 printed them in the emulated host, shortened.
CONSOLE = (
    'FORMAT print fmt: "reason %s", REC->isa == 1 ? __print_symbolic(REC->exit_reason, { 12, "HLT" }) : '
    'REC->isa == 2 ? __print_symbolic(REC->exit_reason, { 0x078, "hlt" }, { 0x07c, "msr" }, { 0x400, "npf" }) : ""\r\n'
    "SIDE guest\r\n"
    "PROBE\r\n# event histogram\r\n{ exit_reason:        120 } hitcount:          5\r\n"
    "PROBE\r\n{ exit_reason:        120 } hitcount:        341\r\n"
    "{ exit_reason:       1024 } hitcount:        400\r\n{ exit_reason:         97 } hitcount:          2\r\n"
)


def counts(*records: tuple[int, ...]) -> bytes:
    return MAGIC + array("Q", [len(records), 100, 20, 3, *(word for record in records for word in record)]).tobytes()


def test_windows_are_the_differences_between_their_marks() -> None:
    begin, end = (8, 10, 20, 30, 1, 2, 0, 5, 6, 7), (9, 110, 220, 330, 41, 52, 0, 65, 76, 8)
    (window,) = read_windows(counts(begin, end, begin))
    assert (window.host_kernel, window.host_user, window.client) == (100, 200, 300)
    assert (window.guest_kernel, window.guest_user, window.entries) == (40, 50, 1)
    assert window.repeats == 60 + 70
    assert window.instructions == 390


def test_marks_out_of_order_are_an_error() -> None:
    with pytest.raises(UserError, match="marks 9 and 8 follow each other"):
        read_windows(counts((9, *[0] * 9), (8, *[0] * 9)))


def test_another_file_is_an_error() -> None:
    with pytest.raises(UserError, match="does not begin as one"):
        read_windows(bytes(100))


def test_progress_is_read_while_the_machine_runs() -> None:
    assert read_progress(counts((8, *[0] * 9))[:64]) == Progress(marks=1, executed=123)
    assert read_progress(b"") == Progress(0, 0)


def test_exits_are_those_between_two_probes_by_the_kernels_names() -> None:
    assert read_exits(CONSOLE) == [{"hlt": 336, "npf": 400, "0x61": 2}]
