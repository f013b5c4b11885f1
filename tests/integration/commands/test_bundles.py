"""publish, compare and replay as a user types them."""

import json
from pathlib import Path

import pytest

from tests.support.committed_run import DEMO, committed
from tests.support.program import vmtoll
from vmtoll.publish.seal import verify


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "bundle"
    made = vmtoll("publish", DEMO, "--output", folder, "--author", "A. Author")
    assert made.returncode == 0, made.stderr
    assert "SHA256SUMS: " in made.stdout
    assert "samples and histograms" in made.stderr, "long work says what it is doing"
    return folder


@pytest.mark.long
def test_a_bundle_compares_with_its_own_run(bundle: Path) -> None:
    done = vmtoll("compare", bundle, DEMO)
    assert done.returncode == 0, done.stderr
    said = [f"both are run {DEMO.name}: agreement between copies of one run reproduces nothing", "4 identical"]
    assert done.stdout.splitlines()[-2:] == said
    found = json.loads(vmtoll("compare", DEMO, bundle, "--json").stdout)
    assert found["counts"] == {"identical": 4}
    assert all(scenario["other_differences"] == [] for scenario in found["scenarios"])


@pytest.mark.parametrize(
    "words",
    ["report BUNDLE", "notebook replication BUNDLE", "notebook replication BUNDLE --output BUNDLE",
     f"notebook replication {DEMO} --output BUNDLE", "run demo --resume BUNDLE", "run demo --resume BUNDLE --dry-run",
     "replay BUNDLE --resume BUNDLE", f"report {DEMO} --output BUNDLE/pages", f"publish {DEMO} --output BUNDLE/again",
     "site --output BUNDLE/site", f"partition {DEMO} --output BUNDLE/data --campaign c --testbed t",
     "workload from-log /dev/null --output BUNDLE/w", f"replication {DEMO} --output BUNDLE/page.html",
     f"notebook replication {DEMO} --output BUNDLE/a/b"],
)  # fmt: skip
def test_a_bundle_is_read_only(bundle: Path, words: str) -> None:
    refused = vmtoll(*(word.replace("BUNDLE", str(bundle)) for word in words.split()))
    assert refused.returncode == 2
    assert f"{bundle}: a bundle is read-only; " in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    verify(bundle)


@pytest.mark.long
def test_reports_and_notebooks_of_a_bundle_are_written_elsewhere(bundle: Path, tmp_path: Path) -> None:
    done = vmtoll("report", bundle, "--output", tmp_path / "copy", "--json")
    assert done.returncode == 0, done.stderr
    assert all(Path(json.loads(done.stdout)[key]).is_file() for key in ("analysis", "report", "table", "spreadsheet"))
    assert not (tmp_path / "copy/SHA256SUMS").exists()
    again = vmtoll("report", bundle, "--output", tmp_path / "copy")
    assert (again.returncode, again.stderr.count("exists; give a new ")) == (2, 1)
    page = vmtoll("notebook", "replication", bundle, "--output", tmp_path / "pages")
    assert page.stdout == f"notebook: {tmp_path}/pages/replication.html\n"
    assert vmtoll("notebook", "replication", tmp_path / "copy").returncode == 0
    verify(bundle)


def test_a_run_is_not_compared_with_itself() -> None:
    done = vmtoll("compare", DEMO, DEMO / "." / ".." / DEMO.name)
    assert (done.returncode, done.stdout) == (2, "")
    assert "are one folder; " in done.stderr


def test_a_replay_shows_its_schedule_first(bundle: Path) -> None:
    """Without machines: for all environments that the published run had."""
    done = vmtoll("replay", bundle, "--dry-run", "--blocks", "2")
    assert done.returncode == 0, done.stderr
    *trials, total = done.stdout.splitlines()
    assert len(trials) == 2 * 2 * (2 * 2 + 1)
    assert total.startswith("20 trials, about ")
    schedule = json.loads(vmtoll("replay", bundle, "--dry-run", "--blocks", "2", "--json").stdout)
    assert {trial["arm"] for trial in schedule["trials"]} >= {"metal"}
    assert len(schedule["trials"]) == 20
    verify(bundle)


def test_a_result_that_is_not_reproduced_is_an_exit_code(bundle: Path, tmp_path: Path) -> None:
    """A run whose guest was as fast as metal contradicts the published one."""
    swapped = tmp_path / "run"
    swapped.mkdir()
    for name in ("run.json", "hosts.json"):
        (swapped / name).write_bytes((DEMO / name).read_bytes())
    lines = (DEMO / "trials.jsonl").read_text()
    metal, guest = '"environment":"metal","replicate":1', '"environment":"kvm-default","replicate":1'
    lines = lines.replace(guest, "GUEST").replace(metal, guest).replace("GUEST", metal)
    (swapped / "trials.jsonl").write_text(lines)
    done = vmtoll("compare", bundle, swapped)
    assert done.returncode == 3, done.stderr
    assert "throughput: not reproduced: " in done.stdout


def test_no_private_file_is_in_the_repository() -> None:
    names = {file.name for file in committed("results")}
    assert "README.md" in names
    assert "private.json" not in names


def test_a_spoilt_bundle_is_refused(bundle: Path) -> None:
    (bundle / "trials.csv").write_text("")
    for words in (("compare", bundle, DEMO), ("compare", DEMO, bundle), ("replay", bundle)):
        refused = vmtoll(*words)
        assert refused.returncode == 2
        assert "trials.csv: changed " in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
