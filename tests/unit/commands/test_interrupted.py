"""What a command says when ^C ends it."""

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from vmtoll.cli import INTERRUPTED, main
from vmtoll.model.errors import RunInterruptedError

RUN = Path("results/tiny/20261126T000000Z-beef")


@pytest.mark.parametrize(
    ("command", "raised", "said"),
    [
        ("run", KeyboardInterrupt(), "vmtoll: interrupted\n"),
        (
            "run", RunInterruptedError(RUN),
            f"vmtoll: interrupted; the results so far are kept: continue with vmtoll run tiny --resume {RUN}\n",
        ),
        ("demo", RunInterruptedError(RUN), f"continue with vmtoll run tiny --resume {RUN}\n"),
        ("replay", RunInterruptedError(RUN), f"the results so far are kept: continue with --resume {RUN}\n"),
        ("campaign", KeyboardInterrupt(), "vmtoll: interrupted\n"),
        ("campaign", RunInterruptedError(RUN), "the results so far are kept: run the same command again to continue\n"),
    ],
)  # fmt: skip
def test_what_is_kept_is_said_where_something_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, raised: BaseException, said: str
) -> None:
    def interrupted() -> NoReturn:
        raise raised

    monkeypatch.setattr(sys, "argv", ["vmtoll", command])
    with pytest.raises(SystemExit) as end:
        main(interrupted)
    assert end.value.code == INTERRUPTED
    assert capsys.readouterr().err.endswith(said)
