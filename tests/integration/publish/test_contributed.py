"""Bundles of others: which are admitted, and the sentence that refuses each other one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.committed_run import DEMO
from tests.support.program import vmtoll
from tests.support.synthetic_run import Truth, make_run
from vmtoll.model.errors import LoadError
from vmtoll.publish.bundle import publish
from vmtoll.publish.contributed import admit, bundles, check
from vmtoll.publish.seal import digest, seal


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    return publish(make_run(folder, Truth(blocks=2)), folder / "theirs", ["A. Author"])


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """A bundle to spoil."""
    return shutil.copytree(original, tmp_path / "theirs")


def forge(bundle: Path) -> None:
    """Recompute digests and checksums for the current files, as an attacker can."""
    package = json.loads((bundle / "datapackage.json").read_text())
    for resource in package["resources"]:
        if (bundle / resource["path"]).exists():
            resource["hash"] = f"sha256:{digest(bundle / resource['path'])}"
    (bundle / "datapackage.json").write_text(json.dumps(package))
    seal(bundle)


def edit(bundle: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((bundle / name).read_text())
    change(document)
    (bundle / name).write_text(json.dumps(document))


def test_bundles_that_vmtoll_publishes_are_admitted(bundle: Path, tmp_path: Path) -> None:
    real = publish(DEMO, tmp_path / "demo", ["A. Author"])
    admitted, refused = admit(bundles(tmp_path / "none", [bundle, real]))
    assert refused == []
    assert [item.name for item in admitted] == ["contributed/theirs", "contributed/demo"]


def test_a_changed_file_is_refused(bundle: Path) -> None:
    edit(bundle, "hosts.json", lambda hosts: hosts["metal"].update(kernel="7.0"))
    with pytest.raises(LoadError, match=r"hosts\.json: changed .*SHA256SUMS"):
        check(bundle)
    seal(bundle)
    with pytest.raises(LoadError, match=r"hosts\.json: changed .*datapackage\.json"):
        check(bundle)


def question(document: dict[str, Any]) -> None:
    document["experiment"]["question"] = "how fast is 10.1.2.3?"


def finding(document: dict[str, Any]) -> None:
    document["metal"]["nic"] = "virtio 52:54:00:12:34:56"


def serial(document: dict[str, Any]) -> None:
    document["metal"]["serial"] = "A1"


def host(document: dict[str, Any]) -> None:
    document["big1"] = document.pop("client")


def domain(document: dict[str, Any]) -> None:
    xml = "<domain type='kvm'><uuid>1</uuid></domain>"
    document["kvm-host-1"]["domains"] = {"kvm-default": xml}


@pytest.mark.parametrize(
    ("file", "change", "text"),
    [
        ("run.json", question, "'how fast is 10.1.2.3?' may name a machine"),
        ("hosts.json", finding, "'virtio 52:54:00:12:34:56' may name a machine"),
        ("hosts.json", serial, "'serial' may name a machine"),
        ("hosts.json", host, "'big1' may name a machine"),
        ("hosts.json", domain, "'domain kvm-default' may name a machine"),
    ],
)
def test_machine_names_are_refused_even_with_a_correct_seal(
    bundle: Path, file: str, change: Callable[[dict[str, Any]], None], text: str
) -> None:
    edit(bundle, file, change)
    forge(bundle)
    with pytest.raises(LoadError, match=f"{file}: {text.replace('?', '[?]')}.*; publish "):
        check(bundle)


def test_private_names_are_refused(bundle: Path) -> None:
    (bundle / "private.json").write_text("{}")
    forge(bundle)
    with pytest.raises(LoadError, match=r"private\.json: names machines; publish"):
        check(bundle)


@pytest.mark.parametrize("name", ["histograms.parquet", "LICENSE", "hosts.json", "verdicts.csv", "SHA256SUMS"])
def test_a_missing_file_is_refused(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    if name != "SHA256SUMS":
        forge(bundle)
    with pytest.raises(LoadError, match=f"{name}.*(: missing, |; give a folder )"):
        check(bundle)


def test_a_run_that_is_not_whole_is_refused(bundle: Path) -> None:
    text = (bundle / "trials.jsonl").read_text().splitlines(keepends=True)
    (bundle / "trials.jsonl").write_text("".join(text[:-1]))
    forge(bundle)
    with pytest.raises(LoadError, match=r"trials\.jsonl: 5 of 6 trials; "):
        check(bundle)
    (bundle / "trials.jsonl").write_text("".join(text))
    edit(bundle, "run.json", lambda run: run.update(status="running"))
    forge(bundle)
    with pytest.raises(LoadError, match=r"run\.json: status is running; "):
        check(bundle)


def test_another_licence_than_an_open_one_is_refused(bundle: Path) -> None:
    edit(bundle, "datapackage.json", lambda package: package.update(licenses=[{"name": "proprietary"}]))
    seal(bundle)
    with pytest.raises(LoadError, match=r"datapackage\.json: licenses: \['proprietary'\] "):
        check(bundle)


def test_the_same_run_and_the_same_name_count_once(bundle: Path, tmp_path: Path) -> None:
    again = shutil.copytree(bundle, tmp_path / "more" / "again")
    admitted, refused = admit([bundle, again])
    assert [item.name for item in admitted] == ["contributed/theirs"]
    assert len(refused) == 1
    assert f"is {bundle} already; " in refused[0]
    run_id = admitted[0].run.manifest.run_id
    admitted, (why,) = admit([bundle], [run_id])
    assert (admitted, why.startswith(f"{bundle}: run {run_id} ")) == ([], True)


def test_a_folder_without_a_bundle_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no bundle .*SHA256SUMS.*`vmtoll publish`"):
        bundles(tmp_path, [tmp_path])


def test_the_site_shows_what_is_admitted_and_names_what_is_refused(bundle: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(bundle, results / "contributed" / "good")
    (bundle / "report.html").write_text("<script>theirs</script>")
    done = vmtoll("site", "--results", results, "--output", tmp_path / "site", "--from", bundle)
    assert done.returncode == 1
    assert done.stderr.startswith(f"vmtoll: refused: {bundle / 'report.html'}: ") and "SHA256SUMS" in done.stderr
    assert done.stderr.count("\n") == 1
    assert vmtoll("site", "--results", results, "--output", tmp_path / "site").returncode == 0
    files = {str(file.relative_to(tmp_path / "site")) for file in (tmp_path / "site").rglob("*") if file.is_file()}
    assert files == {"index.html", "runs/contributed/good/disclosure.html"}
    assert '"id":"contributed/good"' in (tmp_path / "site" / "index.html").read_text()
