"""Other programs: a failure is one line that names the command and the file with all that it printed."""

import re
from pathlib import Path

import pytest
import yaml

from vmtoll import shell
from vmtoll.commands.provision import provision
from vmtoll.lab import embedded
from vmtoll.model.errors import UserError
from vmtoll.shell import Changes, play, run


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_command_that_fails_is_named_with_its_last_line_and_a_file_for_the_rest() -> None:
    with pytest.raises(UserError) as caught:
        run(["sh", "-c", "echo first >&2; echo 'disk is full.' >&2; exit 3"])
    message = re.fullmatch(r"`sh -c .*` failed \(exit code 3\): disk is full; see (\S+\.log)", str(caught.value))
    assert message
    assert Path(message[1]).read_text() == "first\ndisk is full.\n"


def test_the_log_of_a_command_is_named(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "build.log"
    with pytest.raises(UserError, match=rf"`sh -c .*` .*signal 9: compiling; see {log}$"):
        run(["sh", "-c", "echo compiling; kill -9 $$"], log=log)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"^no-such-program: program not found; install.*$"):
        run(["no-such-program", "--version"])


def playbook(folder: Path, **task: object) -> str:
    tasks = [{"name": "Look", "command": "true"}, {"name": "Loop", "loop": ["a", "b"], **task}]
    file = folder / "play.yml"
    content = [{"hosts": "all", "connection": "local", "gather_facts": False, "tasks": tasks}]
    file.write_text(yaml.safe_dump(content))
    return str(file)


def test_a_playbook_gives_the_changes_of_each_machine(tmp_path: Path) -> None:
    changes: Changes = {"one": [{"task": "earlier"}]}
    when = {"command": "true", "changed_when": "item == 'b' and inventory_hostname == 'one'"}
    play(playbook(tmp_path, **when), inventory="one,two,", changes=changes)
    assert changes == {
        "one": [{"task": "earlier"}, {"task": "Look"}, {"task": "Loop", "items": ["b"]}],
        "two": [{"task": "Look"}],
    }


def test_a_playbook_has_ssh_connections_of_its_own(tmp_path: Path) -> None:
    """Those of a play that was killed may lead to a machine that is gone."""
    for number in (1, 2):
        play(playbook(tmp_path, shell=f"echo $ANSIBLE_SSH_CONTROL_PATH_DIR > {tmp_path}/{number}"), inventory="one,")
    folders = {(tmp_path / str(number)).read_text().strip() for number in (1, 2)}
    assert len(folders) == 2
    assert not any(Path(folder).exists() for folder in folders)


def test_a_playbook_that_fails_is_one_line_and_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        play(playbook(tmp_path, shell="echo no {{ item }} here >&2; false"), inventory="one,", quiet=True)
    message = re.fullmatch(r"play\.yml: one: Loop: no a here; see (\S+\.log)", str(caught.value))
    assert message
    assert "PLAY RECAP" in Path(message[1]).read_text()


def test_a_playbook_is_interrupted_by_what_is_seen_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look sees nothing, the second one a guest that panicked; the task would take an hour."""
    monkeypatch.setattr(shell, "LOOK_S", 2.0)
    looks = iter(["", "two panicked"])
    with pytest.raises(UserError, match=r"^two panicked$"):
        play(playbook(tmp_path, command="sleep 3600"), inventory="one,", quiet=True, watch=lambda: next(looks))
    assert not next(looks, None)


def test_a_playbook_that_cannot_be_read_is_one_line_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text("- hosts: [\n")
    with pytest.raises(UserError, match=r"^play\.yml: .*\(exit code \d+\); see \S+\.log$"):
        play(str(tmp_path / "play.yml"), quiet=True)


def test_provision_tells_programs_what_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def provisioned(*words: object, changes: Changes) -> None:
        assert words == (None, ["--check", "--diff"], None, None)
        changes |= {"metal": [{"task": "Install"}], "client": []}

    monkeypatch.setattr(embedded, "provision", provisioned)
    provision(check=True, as_json=True)
    assert yaml.safe_load(capsys.readouterr().out) == {
        "check": True,
        "machines": [{"name": "client", "changes": []}, {"name": "metal", "changes": [{"task": "Install"}]}],
    }
