"""Find bundles of others, and refuse those that are tampered with, unscrubbed or incomplete.

vmtoll does not trust them: it runs nothing in them and shows none of their pages; the site's pages are made of their
records. Each refusal is one sentence with the file and the way out.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vmtoll.analysis.run import Run, load_run
from vmtoll.model.disclosure import OPERATOR
from vmtoll.model.errors import LoadError
from vmtoll.publish import scrub
from vmtoll.publish.package import LARGE_TABLES, LICENCE, PACKAGE, TABLES
from vmtoll.publish.seal import digest, verify
from vmtoll.runs.folder import HOSTS, MANIFEST, SUMS, TRIALS

FOLDER = "contributed"  # of results/
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FILES = (
    MANIFEST, HOSTS, TRIALS, PACKAGE, "README.md", "LICENSE", "CITATION.cff",
    *(f"{table}.csv" for table in TABLES if table != "claims"), *(f"{table}.parquet" for table in LARGE_TABLES),
)  # fmt: skip
_OPEN_LICENCES = re.compile(r"CC0-1\.0|CC-BY(-SA)?-4\.0|ODC-BY-1\.0|PDDL-1\.0|ODbL-1\.0")
# Keys whose values a publication keeps: versions and digests, which may look like addresses, and the authors.
_VERBATIM = scrub.VERBATIM | scrub.VERSIONS | {OPERATOR}


@dataclass(frozen=True)
class Contribution:
    """A bundle that passed the check."""

    folder: Path
    run: Run

    @property
    def name(self) -> str:
        """Name of the bundle on the site."""
        return f"{FOLDER}/{self.folder.name}"


def bundles(results: Path, more: Iterable[Path] = ()) -> list[Path]:
    """The folders in results/contributed, and the bundles that `more` consists of or contains.

    Raises LoadError for a folder in `more` that is not a bundle and contains none.
    """
    contributed = results / FOLDER
    folders = sorted(path for path in contributed.iterdir() if path.is_dir()) if contributed.is_dir() else []
    for folder in more:
        found_bundles = [folder] if _is_bundle(folder) else sorted(p for p in folder.iterdir() if _is_bundle(p))
        if not found_bundles:
            raise LoadError(f"{folder}: no bundle (a folder with {SUMS}); name the folder that `vmtoll publish` wrote")
        folders += found_bundles
    return list(dict.fromkeys(path.resolve() for path in folders))


def _is_bundle(folder: Path) -> bool:
    return (folder / SUMS).is_file() or (folder / PACKAGE).is_file()


def admit(folders: Sequence[Path], run_ids: Iterable[str] = ()) -> tuple[list[Contribution], list[str]]:
    """The bundles that pass the check, and a sentence for each other one. `run_ids`: runs that the site has already, so
    that none counts twice.
    """
    admitted, refused, run_places = list[Contribution](), list[str](), dict.fromkeys(run_ids, "a run of this folder")
    names: dict[str, Path] = {}
    for folder in folders:
        try:
            run = check(folder)
            if other := run_places.get(run.manifest.run_id):
                raise LoadError(f"{folder}: run {run.manifest.run_id} is {other} already; remove either")
            if namesake := names.get(folder.name):
                raise LoadError(f"{folder}: has the name of {namesake}; rename either")
        except LoadError as error:
            refused.append(str(error))
            continue
        run_places[run.manifest.run_id], names[folder.name] = str(folder), folder
        admitted.append(Contribution(folder, run))
    return admitted, refused


def check(folder: Path) -> Run:
    """Load the run of a bundle that is whole, complete and without names. Raises LoadError for the first fault."""
    if not _NAME.fullmatch(folder.name):
        raise LoadError(f"{folder}: the folder's name may have letters, digits, `.`, `_` and `-` only; rename it")
    for name in _FILES:
        if not (folder / name).is_file():
            raise LoadError(f"{folder / name}: missing, so the bundle is incomplete; publish the run again")
    if (folder / scrub.PRIVATE).exists():
        raise LoadError(f"{folder / scrub.PRIVATE}: names machines; publish the run again, which leaves it out")
    verify(folder)
    _verify_package(folder)
    run = load_run(folder)
    _check_complete(folder, run)
    for file, text in leaks(folder, run):
        raise LoadError(f"{folder / file}: {text!r} may name a machine or a person; publish the run again")
    return run


def _verify_package(folder: Path) -> None:
    """Check the license, and the digests in datapackage.json: they do not change if someone seals the bundle again."""
    file = folder / PACKAGE
    try:
        package = json.loads(file.read_text(encoding="utf-8"))
        hashes = {item["path"]: item["hash"].removeprefix("sha256:") for item in package["resources"]}
        licences = [item["name"] for item in package["licenses"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{file}: is not a data package of vmtoll ({error}); publish the run again") from None
    for name in (MANIFEST, HOSTS, TRIALS, *(f"{table}.csv" for table in TABLES)):
        if hashes.get(name) != digest(folder / name):
            raise LoadError(f"{folder / name}: changed since it was published; {PACKAGE} has another hash")
    if not any(_OPEN_LICENCES.fullmatch(str(name)) for name in licences):
        raise LoadError(f"{file}: licenses: {licences} is not an open licence, such as {LICENCE['name']}")


def _check_complete(folder: Path, run: Run) -> None:
    manifest = run.manifest
    if manifest.status != "complete":
        raise LoadError(f"{folder / MANIFEST}: status is {manifest.status}; finish the run and publish it again")
    if not manifest.searches and len(run.trials) < manifest.trials_planned:
        raise LoadError(
            f"{folder / TRIALS}: {len(run.trials)} of {manifest.trials_planned} trials; publish the whole run"
        )
    if unknown := sorted({str(arm.environment) for arm in run.arms} - _environments(run)):
        raise LoadError(f"{folder / HOSTS}: no machine of {unknown[0]}; publish the whole run")


def _environments(run: Run) -> set[str]:
    return {facts.environment for facts in run.hosts.values() if facts.environment}


def leaks(folder: Path, run: Run) -> Iterator[tuple[str, str]]:
    """Yield (file, text) for each text that publishing would have changed."""
    scrubber = scrub.Scrubber({}, scrub.scrubber_of(run).vocabulary)
    role_names = set(scrub.roles(run.hosts).values())
    yield from ((HOSTS, name) for name in run.hosts if name not in role_names)
    for facts in run.hosts.values():
        yield from ((HOSTS, key) for key in facts.recorded if key not in (*scrub.PUBLISHED, "domains"))
        for name, xml in facts.domains.items():
            if scrub.domain_xml(xml, name) != xml:
                yield HOSTS, f"domain {name}"
    for file in (MANIFEST, HOSTS):
        document = json.loads((folder / file).read_text(encoding="utf-8"))
        yield from ((file, text) for text in _texts(document) if scrubber.text(text) != text)
    for record in run.records:
        for finding in record.findings:
            payload = _texts(asdict(finding.payload)) if finding.payload else ()
            details = (finding.machine, finding.process, finding.detail, *payload)
            yield from ((TRIALS, text) for text in details if text and scrubber.text(text) != text)


def _texts(value: Any) -> Iterator[str]:
    """Every text of a JSON value, including keys, but not the values of keys that are published verbatim."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            if key not in _VERBATIM:
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
