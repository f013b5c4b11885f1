"""smtp-source and our own mailer, against recorded output; and their command lines."""

import json
from dataclasses import replace

import pytest

from tests.support.recordings import parse, recorded
from vmtoll import loadgen
from vmtoll.model.errors import ToolError


def test_smtp_source_counts_what_was_accepted() -> None:
    seen = parse("smtp_source-good")
    assert (seen.transactions, seen.successful, seen.failed) == (60, 60, 0)
    assert seen.transferred_mb == pytest.approx(60 * 4096 / 1e6)
    assert seen.latencies_us is None, "it logs no times: the server's own log has them"


def test_smtp_source_stops_at_the_first_trouble_and_the_rest_has_failed() -> None:
    seen = parse("smtp_source-server-died")
    assert recorded("smtp_source-server-died")[1].exit_status == 1
    assert 0 < seen.successful < 2000
    assert seen.successful + seen.failed == 2000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smtp_source-refused", "ended with 1.*connect: Connection refused"),
        ("smtp_source-rejected", r"ended with 1.*554 5\.7\.1 <1nobody@elsewhere\.test>: Relay access denied"),
        ("smtp_source-killed", "smtp-source did not end within its bound and was killed"),
        ("mailer-killed", "mailer did not end within its bound and was killed"),
    ],
)
def test_no_message_at_all_is_an_error_with_its_words(name: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        parse(name)


def test_a_count_that_falls_short_of_success_is_an_error() -> None:
    load, output = recorded("smtp_source-good")
    with pytest.raises(ToolError, match=r"code 0, .*60 of 61 "):
        loadgen.get("smtp_source").parse(replace(load, requests=61), output)


@pytest.mark.parametrize("name", ["mailer-submission", "mailer-imap", "mailer-pop3"])
def test_mailer_logs_every_session(name: str) -> None:
    seen = parse(name)
    assert (seen.transactions, seen.successful, seen.failed) == (40, 40, 0)
    assert seen.latencies_us is not None and seen.sent_us is not None
    assert len(seen.latencies_us) == 40 and seen.latencies_us.min() > 0
    assert seen.elapsed_s * 1e6 <= seen.latencies_us.sum(), "five users at once"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mailer-wrong-password", "authentication failed"),
        ("mailer-wrong-body", "is not the one that was put there"),
        ("mailer-refused", "Connection refused"),
    ],
)
def test_mailer_reports_why_sessions_failed(name: str, words: str) -> None:
    seen = parse(name)
    assert (seen.successful, seen.failed) == (0, 10)
    assert words in recorded(name)[1].stderr


def test_mailer_distinguishes_good_and_bad_sessions_when_the_server_dies() -> None:
    seen = parse("mailer-server-died")
    assert 0 < seen.successful < 200
    assert seen.successful + seen.failed == 200


def test_mailer_whose_log_is_cut_is_an_error() -> None:
    load, output = recorded("mailer-imap")
    with pytest.raises(ToolError, match="middle of a line"):
        loadgen.get("mailer").parse(load, replace(output, files={"requests.log": output.files["requests.log"][:-3]}))
    with pytest.raises(ToolError, match="made 39 of 40 sessions"):
        shorter = b"".join(output.files["requests.log"].splitlines(keepends=True)[1:])
        loadgen.get("mailer").parse(load, replace(output, files={"requests.log": shorter}))


def test_commands_of_the_mail_tools() -> None:
    load, _ = recorded("mailer-imap")
    argv = list(loadgen.get("smtp_source").command(load).argv)
    assert argv[argv.index("-M") + 1] == load.tag and argv[argv.index("-m") + 1] == "40" and "-N" in argv
    command = loadgen.get("mailer").command(replace(load, password="only in a file"))
    assert "only in a file" not in str(command.argv), "a command line is seen by everybody on the machine"
    assert json.loads(command.files["load.json"])["password"] == "only in a file"
