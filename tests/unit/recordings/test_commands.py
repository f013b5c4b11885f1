"""Commands as trials: what is measured, in which order, and what counts as worse or as an error."""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from vmtoll.model.errors import UserError
from vmtoll.recordings.commands import Runner, WorseError, pattern_values, run_once, shell, time_values
from vmtoll.recordings.rows import Better, Row, Value, read_rows, row_line


def runner(*commands: str, **keys: object) -> Runner:
    sides = dict(zip(("old", "new"), commands, strict=True))
    return Runner(sides, keys.pop("values", time_values), seed=1, **keys)  # type: ignore[arg-type]


def test_a_trial_has_the_time_of_its_command_and_its_children(tmp_path: Path) -> None:
    trial = run_once("sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; sleep 0.1", tmp_path, None, None)
    assert trial.wall_s >= 0.1
    assert 0 < trial.cpu_s <= trial.wall_s
    assert [value.metric for value in time_values(trial)] == ["time", "CPU time"]


def test_every_two_blocks_have_both_orders() -> None:
    run = runner("true", "true")
    orders = [tuple(dict.fromkeys(row.side for row in run.block(number))) for number in range(1, 41)]
    assert all(orders[n] == orders[n + 1][::-1] for n in range(0, 40, 2))
    assert min(Counter(orders[::2]).values()) >= 4  # the first of two is drawn


@pytest.mark.parametrize("command", ["sh -c 'echo oh; exit 3'", "echo oh; exit 3"])
def test_a_failed_side_is_worse_and_a_failed_baseline_an_error(command: str) -> None:
    with pytest.raises(WorseError, match=r"exit 3.*: ended with exit code 3; its last lines: oh"):
        list(runner("true", command).block(1))
    with pytest.raises(UserError, match="ended with exit code 3; its last lines: oh"):
        list(runner(command, "true").block(1))


def test_a_hanging_side_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    hanging = f"sh -c 'sleep 3; touch {mark}' & sleep 60"
    began = time.monotonic()
    with pytest.raises(WorseError, match="did not end within the --timeout; it printed nothing"):
        list(runner("true", hanging, timeout_s=0.3).block(1))
    assert time.monotonic() - began < 2.5
    time.sleep(3)
    assert not mark.exists()


def test_another_output_is_worse() -> None:
    with pytest.raises(WorseError, match="echo b: printed something else; its last lines: b"):
        list(runner("echo a", "echo b", same_output=True).block(1))
    assert list(runner("echo a", "echo a", same_output=True).block(1))


def test_a_pattern_reads_numbers(tmp_path: Path) -> None:
    trial = run_once("printf 'rate: 12.5\\nrate: 13\\nmean 2 p99 7\\n'", tmp_path, None, None)
    assert pattern_values(r"^rate: ([0-9.]+)", Better.HIGHER)(trial) == [
        Value("value", 12.5, Better.HIGHER), Value("value", 13.0, Better.HIGHER, replicate=2),
    ]  # fmt: skip
    named = pattern_values(r"mean (?P<mean>\d+) p99 (?P<p99>\d+)", None)(trial)
    assert [(value.metric, value.value) for value in named] == [("mean", 2.0), ("p99", 7.0)]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("rate: [0-9]+", "has no group"),
        ("rate: ([0-9]+", "--value rate: .*unterminated|missing"),
        ("speed: ([0-9]+)", "not in the output; its last lines: rate: fast"),
        ("rate: (.+)", "'rate: fast' is not a number"),
    ],
)
def test_a_pattern_that_finds_no_number(tmp_path: Path, pattern: str, said: str) -> None:
    trial = run_once("echo rate: fast", tmp_path, None, None)
    with pytest.raises(UserError, match=said):
        pattern_values(pattern, None)(trial)


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^no-such-program: No such file or directory; correct --run"):
        run_once("no-such-program --x", tmp_path, None, None)


def test_prepare_and_setup_run_before(tmp_path: Path) -> None:
    shell([f"touch {tmp_path}/once"], "--setup")
    assert (tmp_path / "once").exists()
    list(runner(f"test -e {tmp_path}/each", f"rm {tmp_path}/each", prepare=f"touch {tmp_path}/each").block(1))
    with pytest.raises(UserError, match=r"^--setup false: ended with exit code 1"):
        shell(["false"], "--setup")
    with pytest.raises(UserError, match=r"^--prepare false: "):
        list(runner("true", "true", prepare="false").block(1))


def test_cpus_are_those_of_the_list(tmp_path: Path) -> None:
    first = min(os.sched_getaffinity(0))
    trial = run_once("python3 -c 'import os; print(os.sched_getaffinity(0))'", tmp_path, None, {first})
    assert trial.output.read_text().strip() == str({first})


def test_saved_rows_are_a_judge_file(tmp_path: Path) -> None:
    rows = [*runner("true", "true").block(1), Row(2, "old", Value("x", 1.0, failed=1, requests=9), 2, "h")]
    (tmp_path / "page").write_text("".join(f"{row_line(row)}\n" for row in rows))
    assert read_rows(tmp_path / "page") == rows
