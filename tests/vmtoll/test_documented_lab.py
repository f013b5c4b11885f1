"""The lab `my-lab` of the documents: sound, the same in one file and in many, and fit for what is run on it."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from vmtoll.preflight.checks import inventory as check
from vmtoll.preflight.lab import Lab
from workloads.runner.inventory import load_inventory
from workloads.runner.registry import PROJECT, Registry

README, REAL_HOSTS = "README.md", "docs/real-hosts.md"
DOCUMENTS = [README, *(str(file.relative_to(PROJECT)) for file in sorted((PROJECT / "docs").glob("*.md")))]
ENVIRONMENTS = ["metal", "kvm-default"]


def text_of(document: str) -> str:
    return (PROJECT / document).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(document), re.DOTALL)


def files(document: str) -> dict[str, str]:
    """The lab's files that a document shows, each below a line with its name."""
    found: dict[str, str] = {}
    for block in blocks(document, "yaml"):
        parts = re.split(r"^# (my-lab\S*)\n", block, flags=re.MULTILINE)
        found |= zip(parts[1::2], parts[2::2], strict=True)
    return found


def written(document: str, folder: Path) -> Path:
    """The lab of a document, on disk; what `--inventory` names."""
    for name, text in files(document).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (inventory,) = folder.iterdir()
    return inventory


def experiments(document: str) -> list[str]:
    """Those that a document's commands run on the lab."""
    found: list[str] = []
    for command in re.split(r"\n|&&", "\n".join(blocks(document, "sh"))):
        words = shlex.split(command, comments=True) if "my-lab" in command else []
        found += [name for word in words if word.startswith("E=") for name in word[2:].split()]
        for verb in {"run", "campaign"} & set(words):
            named = words[words.index(verb) + 1 :]
            found += named[: next(n for n, word in enumerate(named) if word.startswith(("-", "E=", "INVENTORY=")))]
    return list(dict.fromkeys(found))


def link_of(experiment: str, document: str) -> str:
    """The link that an experiment wants: one of the project's, or one that the document itself writes."""
    file = Registry().experiment_file(experiment)
    if file.is_file():
        text = file.read_text(encoding="utf-8")
    else:
        here = rf"^cat > workloads/experiments/{experiment}\.yml <<'END'\n(.*?)^END$"
        (text,) = re.findall(here, text_of(document), re.DOTALL | re.MULTILINE)
    return str(yaml.safe_load(text).get("link", "unshaped"))


def test_one_file_and_one_file_per_machine_are_the_same_lab(tmp_path: Path) -> None:
    one, many = written(README, tmp_path / "one"), written(REAL_HOSTS, tmp_path / "many")
    assert one.is_file() and many.is_dir()
    assert load_inventory(one, ENVIRONMENTS) == load_inventory(many, ENVIRONMENTS)
    assert {file.stem for file in (many / "host_vars").iterdir()} == {"load1", "big1", "big1-metal", "guest1"}


@pytest.mark.parametrize("document", [README, REAL_HOSTS])
def test_preflight_has_nothing_against_the_inventory(document: str, tmp_path: Path) -> None:
    lab = Lab.read(written(document, tmp_path / "lab"), None, print)
    assert [finding.level for finding in check.check(lab)] == ["ok"]


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if "my-lab" in text_of(name)])
def test_its_link_is_the_one_that_the_experiments_want(document: str) -> None:
    variables = [yaml.safe_load(text).get("all", {}).get("vars", {}) for text in files(README).values()]
    (link,) = (said["vmtoll_link"] for said in variables)
    wanted = {experiment: link_of(experiment, document) for experiment in experiments(document)}
    assert wanted
    assert set(wanted.values()) == {link}, wanted


def test_the_experiments_of_the_readme_are_found() -> None:
    assert experiments(README) == ["demo", "shop"]
    assert experiments("docs/campaigns.md") == ["demo", "tails"]


def test_the_readme_names_the_experiments_that_want_a_rate() -> None:
    (sentence,) = re.findall(r"The experiments that name a rate, (.*?) need clients", text_of(README))
    links = {name: link_of(name, README) for name in Registry().experiments()}
    rates = {link: sorted(n for n in links if links[n] == link) for link in links.values() if link != "unshaped"}
    assert {
        link: sorted(re.findall(r"`([a-z0-9-]+)`", names))
        for link, names in re.findall(r"`(?:link: )?([0-9]+[mg]bit)` \((.*?)\)", sentence)
    } == rates
