"""Logs as they are found: packed, malformed, with secrets; and what the command says of what it cannot use."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import BEGIN_S, Hit, day, make_workload, write
from tests.support.program import vmtoll
from vmtoll.access_log import Options, from_log
from vmtoll.access_log.read import database, read
from vmtoll.model.errors import LogError


def outputs(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("packed", ["access.log.gz", "access.log.zst"])
def test_packed_and_rotated_logs_are_as_one_plain(tmp_path: Path, packed: str) -> None:
    hits = day(3_000)
    make_workload([write(tmp_path / "plain.log", hits)], tmp_path / "plain")
    make_workload([write(tmp_path / packed, hits)], tmp_path / "packed")
    assert outputs(tmp_path / "packed") == outputs(tmp_path / "plain")
    series = [
        write(tmp_path / "access.log", hits[2_000:]),
        write(tmp_path / "access.log.2.gz", hits[:500]),
        write(tmp_path / "odd [1]*.log.zst", hits[500:2_000]),
    ]
    make_workload([*series, series[0]], tmp_path / "rotated")
    rotated, plain = outputs(tmp_path / "rotated"), outputs(tmp_path / "plain")
    summary = json.loads(rotated.pop("from-log.summary.json"))
    assert summary.pop("logs") == 3
    assert summary == {k: v for k, v in json.loads(plain.pop("from-log.summary.json")).items() if k != "logs"}
    assert rotated == plain


INJECTED = {
    "client": "203.0.113.77",
    "user": "zacharias-q",
    "path": "/injected-path/injected-file.injectedext?injected_key=injected-value",
    "referrer": "https://injected-referrer.example/x",
    "agent": "PlantedAgent/9.9",
}
SECRETS = ["203.0.113.77", "203.0", "zacharias", "injected", "2001:db8", "9f3c", "injectedext"]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_nothing_of_the_texts_gets_out(tmp_path: Path, words: tuple[str, ...]) -> None:
    hits: list[Hit | str | bytes] = [Hit(BEGIN_S + i // 9, **INJECTED) for i in range(300)]  # type: ignore[arg-type]
    hits += [Hit(BEGIN_S, client="2001:db8::9f3c", path="/injected-other.js", status=404, method="INJECTED")]
    hits += [
        "injected malformed 203.0.113.77 line",
        b"injected\0\xff" + b"injected" * 500_000,
        "203.0.113.77 - - [injected",
    ]
    log = write(tmp_path / "injected-vhost-access.log", hits)
    done = vmtoll("workload", "from-log", log, "--output", tmp_path / "out", *words)
    assert done.returncode == 0, done.stderr
    written = outputs(tmp_path / "out")
    assert len(written) == 4
    said = done.stdout + done.stderr
    for name, content in {**written, "printed": said.encode()}.items():
        for secret in SECRETS:
            assert secret.encode() not in content.lower(), f"{secret} in {name}"
    if words:
        assert json.loads(done.stdout) == json.loads(written["from-log.summary.json"])
    else:
        assert "304 lines" in said
        assert "304, 3 of them malformed (line 302, line 303, line 304)" in said


def test_what_duckdb_says_of_a_log_is_not_passed_on(tmp_path: Path) -> None:
    log = write(tmp_path / "cut.log.gz", [Hit(BEGIN_S + i, path=f"/injected{i * 7919}") for i in range(5_000)])
    log.write_bytes(log.read_bytes()[:-2_000])
    with pytest.raises(LogError, match=r"log cannot be .*GZIP stream") as caught:
        from_log([log], tmp_path / "out", Options(), lambda said: None)
    assert "injected" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_malformed_lines_are_counted_and_named(tmp_path: Path) -> None:
    good = Hit(BEGIN_S)
    first = write(tmp_path / "1.log", [good, good, b"x" * 3_000_000, good, "", good])
    second = write(
        tmp_path / "2.log",
        [
            good,
            b"\0" * 500,
            good.line.replace("01/Mar", "32/Mar"),
            good.line.replace("01/Mar", "01/Mrz"),
            b"\xff\xfe \xe9 " + good.line.encode(),
            b"203.0.113.1 - - " + good.line.partition(" - - ")[2].encode() + b' "an additional field" 0.003',
            good.line.replace(AGENT_IN, 'agent \xe9 with \\" a quote'),
            good.line.replace("/index.html", '/a\\"b.html'),
            good.line.partition('" 200')[0],
            good.line.replace('" 200 1000', '" 200 12x'),
            *[good] * 30,
        ],
    )
    shapes = ["?", '9.9.9.9 - - [9/a/9:9:9:9 +9] "a /a.a a/9.9" 9 9 "-" "a/9.9 (a9; a a9_9) a/9.9"']
    with database() as db:
        lines = read(db, [first, second], lambda said: None)
    assert (lines.total, lines.malformed) == (45, 6)
    assert list(lines.first_malformed) == [(1, 3, "too long"), (2, 2, shapes[0]), (2, 3, shapes[1])]
    with database() as db:
        lines = read(db, [second], lambda said: None)
    assert list(lines.first_malformed) == [(1, 2, shapes[0]), (1, 3, shapes[1]), (1, 4, shapes[1])]


@pytest.mark.parametrize(("malformed", "warns"), [(1, False), (2, True)])
def test_malformed_lines_lower_the_share_and_warn_with_examples(tmp_path: Path, malformed: int, warns: bool) -> None:
    """Of 100 lines one may be malformed."""
    lines: list[Hit | str] = [*(Hit(BEGIN_S + i) for i in range(100 - malformed)), *["GET /injected 200"] * malformed]
    log = write(tmp_path / "a.log", lines)
    printed = vmtoll("workload", "from-log", log, "--output", tmp_path / "out").stdout
    assert f"stands for:   {100 - malformed}.0% of" in printed
    assert bool(re.search("warning: +2.0% of .*malformed, ", printed)) is warns
    assert ("have the shapes 'a /a 9', 'a /a 9'" in printed) is warns


AGENT_IN = Hit(0).agent


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_line_ends_of_either_kind_and_a_last_line_without_one(tmp_path: Path, ending: str) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(ending.join(Hit(BEGIN_S + i).line for i in range(5)).encode())
    with database() as db:
        assert read(db, [log], lambda said: None).total == 5
        assert db.execute("SELECT sum(body_bytes), count(at_s), count(DISTINCT client) FROM answers").fetchone() == (
            5000,
            5,
            1,
        )
    common = Hit(BEGIN_S).line.partition(' "-"')[0]
    log.write_bytes(f"{common}{ending}{common}\r\n{common}\n".encode())
    with database() as db:
        lines = read(db, [log], lambda said: None)
        assert (lines.total, lines.malformed) == (3, 0)


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ([], {}, "empty; give an access log"),
        (
            ["hello", "world"],
            {},
            r"line 1 is in no known format \(a\), and so are 2 of 2 lines; each line needs a time,",
        ),
        ([Hit(BEGIN_S, body_bytes=0)], {}, "none of 1 answers to GET requests has a size; let the server log"),
        ([Hit(BEGIN_S, method="POST"), Hit(BEGIN_S, status=500)], {}, "none of 2 requests is a GET"),
        ([Hit(BEGIN_S)], {"name": "Über"}, "--name Über: give lower-case letters"),
        ([Hit(BEGIN_S)], {"name": "taken"}, r"taken\.yml exists; remove it, or give another --name"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, content: list[Any], options: dict[str, Any], said: str) -> None:
    (tmp_path / "out/sites").mkdir(parents=True)
    (tmp_path / "out/sites/taken.yml").touch()
    log = write(tmp_path / "a.log", content)
    with pytest.raises(LogError, match=said) as caught:
        from_log([log], tmp_path / "out", Options(**options), lambda said: None)
    assert len(str(caught.value).splitlines()) == 1
    assert len(outputs(tmp_path / "out")) == 1


def test_a_zst_that_is_cut_short_is_seen(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log.zst", [Hit(BEGIN_S + i, path=f"/{i * 7919}") for i in range(50_000)])
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    with pytest.raises(LogError, match=r"a\.log\.zst: .*`zstd --test`"):
        from_log([log], tmp_path / "out", Options(), lambda said: None)


@pytest.mark.parametrize(
    ("words", "said"), [(("{tmp}/none.log",), "none.log: no such file"), (("{tmp}/empty.log",), "empty.log: empty;")]
)
def test_the_command_line_refuses_in_one_sentence(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "empty.log").touch()
    done = vmtoll("workload", "from-log", *(word.format(tmp=tmp_path) for word in words), "--output", tmp_path / "o")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
