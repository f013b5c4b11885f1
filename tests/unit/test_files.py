"""Drafts take their place whole or leave nothing, and errors never name them; locks are refused or waited for."""

import threading
from pathlib import Path

import pytest

from vmtoll.files import locked, replacing, write_durably
from vmtoll.model.errors import UserError


def test_a_draft_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").touch()
    with replacing(folder) as draft:
        draft.mkdir()
        (draft / "new").touch()
        assert (folder / "old").exists()
    assert [file.name for file in folder.iterdir()] == ["new"]
    write_durably(tmp_path / "file", b"1")
    write_durably(tmp_path / "file", b"2")
    assert (tmp_path / "file").read_bytes() == b"2"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("cause", [KeyboardInterrupt(), ValueError("no")])
def test_an_interrupt_or_error_removes_the_draft(tmp_path: Path, kind: str, cause: BaseException) -> None:
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(type(cause)), replacing(tmp_path / "kept") as draft:
        if kind == "folder":
            draft.mkdir()
        (draft / "half" if kind == "folder" else draft).write_text("half")
        raise cause
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept"


def test_an_error_names_the_file_and_not_its_draft(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        write_durably(tmp_path / "file" / "run.json", b"")
    assert caught.value.filename == str(tmp_path / "file" / "run.json")
    with pytest.raises(FileNotFoundError) as inside, replacing(tmp_path / "bundle") as draft:
        (draft / "missing" / "a.csv").write_text("")
    assert inside.value.filename == str(tmp_path / "bundle")


def test_a_lock_that_another_holds_is_refused_or_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, waited = tmp_path / "lock", threading.Event()

    def wait() -> None:
        with locked(file, "it is held; waiting"):
            waited.set()

    waiter = threading.Thread(target=wait)
    with locked(file, UserError("it is held")):
        with pytest.raises(UserError, match="it is held"), locked(file, UserError("it is held")):
            pass
        waiter.start()
        assert not waited.wait(0.2)
    waiter.join(10)
    assert waited.is_set()
    assert capsys.readouterr().err == "it is held; waiting\n"
    with locked(file, UserError("it is free again")):
        pass
