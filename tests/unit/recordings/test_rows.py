"""Judge files: what is read, and the line of what is not."""

import math
from pathlib import Path

import pytest

from vmtoll.model.errors import UserError
from vmtoll.recordings.rows import Better, Row, Value, read_rows


def read(tmp_path: Path, text: str) -> list[Row]:
    (tmp_path / "page").write_text(text)
    return read_rows(tmp_path / "page")


def test_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    wanted = [
        Row(1, "old", Value("time", 1.5, Better.LOWER, "parse", "s", requests=10, failed=1), 2, "a"),
        Row(1, "new", Value("time", 2.0, Better.LOWER, "parse", "s", replicate=3), 2, "a"),
    ]
    table = (
        "block,side,metric,value,better,benchmark,unit,replicate,boot,host,failed,requests\n"
        "1,old,time,1.5,lower,parse,s,,2,a,1,10\n1, new ,time,2,lower,parse,s,3,2,a,,\n"
    )
    lines = (
        '{"block": 1, "side": "old", "metric": "time", "value": 1.5, "better": "lower", "benchmark": "parse", "unit": '
        '"s", "boot": 2, "host": "a", "failed": 1, "requests": 10}\n\n{"block": 1, "side": "new", "metric": "time", '
        '"value": "2", "better": "lower", "benchmark": "parse", "unit": "s", "replicate": 3, "boot": 2, "host": "a"}\n'
    )
    assert read(tmp_path, table) == read(tmp_path, "\ufeff" + table) == read(tmp_path, lines) == wanted


def test_what_is_no_number_is_read_and_judged_later(tmp_path: Path) -> None:
    values = [row.value.value for row in read(tmp_path, "block,side,metric,value\n1,a,t,nan\n1,b,t,-0.5\n2,a,t,0\n")]
    assert math.isnan(values[0])
    assert values[1:] == [-0.5, 0.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no rows"),
        ("block,side,metric,value\n", "has no rows"),
        ("block,side,value\n1,a,2\n", "line 2: has no metric; a row needs block, side, metric, value"),
        ("block,side,metric,value\n1.5,a,t,2\n",
         "line 2: block: '1.5' is not a whole number of 0 or more, in the order of time"),
        ("block,side,metric,value\nfirst,a,t,2\n", "line 2: block: 'first' is not a whole number"),
        ("block,side,metric,value\n1,a,t,2\n1,a,t,3\n", "line 3: a has a t in block 1 already, in line 2; number"),
        ("block,side,metric,value\n1,a,t,fast\n", "line 2: value: 'fast' is not a number"),
        ("block,side,metric,value\n1,a,t\n", "line 2: has not as many fields as the heading"),
        ("block,side,metric,value,better\n1,a,t,2,more\n", "line 2: better: 'more'; give higher or lower"),
        ("block,side,metric,value,colour\n1,a,t,2,red\n", "line 2: unknown key 'colour'; known: block"),
        ("block,side,metric,value,failed,requests\n1,a,t,2,3,2\n", "line 2: failed: 3 of 2 requests"),
        ('{"block": 1}\n', "line 1: has no side"),
        ('{"block": 1, "side": "a", "metric": "t", "value": 1}\n[1]\n', "line 2: is not an object"),
        ('{"block": true, "side": "a", "metric": "t", "value": 1}\n', "line 1: block: True is not a whole number"),
        ('{"block": 1, "side": "a"\n', "line 1: is not JSON"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'page'}: {said}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path}/none: No such file"):
        read_rows(tmp_path / "none")
