"""`python -m benchmarks.contract write FOLDER | compare OLD NEW`: see scripts/contract."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contract import machine
from benchmarks.contract.compare import compare
from benchmarks.contract.parts import FUNCTIONS, PARTS, Place, as_json

PROJECT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).with_name("probe.py")
HARVESTED = ("analysis", "report", "capacity", "campaign", "publish", "spec", "guests", "preflight")  # of tests/unit
# What varies from one writing to the next, by name: pattern, what stands in its place.
VARIES = {
    "temporary folder": (r"/tmp/contract-\w{8}", "/tmp/contract"),
    "id of a process": (r"\bpid \d+\b", "pid N"),
    "date of this day": (time.strftime("%Y-%m-%d"), "DATE"),
    "time of this day": (r"DATE[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?", "DATE TIME"),
    "duration of a notebook's cell": (r'"(duration|start_time|end_time)": [^,\n}]+', r'"\1": T'),
}
BINARY = {".hdr", ".png", ".lock", ".zip", ".parquet", ".pdf"}


def main() -> int:
    """Run the command that was typed; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/contract", description="Write and compare golden outputs.")
    commands = parser.add_subparsers(dest="command", required=True)
    names = [*PARTS, *FUNCTIONS, "machine"]
    write_parser = commands.add_parser("write", help="write what a tree answers into FOLDER")
    write_parser.add_argument("folder", type=Path)
    write_parser.add_argument("--commit", help="let this commit answer, not the files of this checkout")
    write_parser.add_argument("--inputs", type=Path, help="read the inputs of this earlier FOLDER, not new ones")
    compare_parser = commands.add_parser("compare", help="show how NEW differs from OLD; exit 1 if it does")
    compare_parser.add_argument("old", type=Path)
    compare_parser.add_argument("new", type=Path)
    for each in (write_parser, compare_parser):
        each.add_argument("--part", action="append", default=[], choices=names, help="only this part (repeatable)")
    words = parser.parse_args()
    if words.command == "write":
        return write(words.folder.resolve(), words.commit, words.inputs, words.part)
    lines = list(compare(words.old, words.new, words.part or [n for n in names if (words.old / n).is_dir()]))
    print("\n".join(lines))
    return int(any(": DIFFERS: " in line for line in lines if line.startswith("part ")))


def write(folder: Path, commit: str | None, inputs: Path | None, parts: Sequence[str]) -> int:
    """Let a copy of the tree answer; the copy is no repository, so that no answer names a commit."""
    if folder.is_relative_to(PROJECT):
        print(f"{folder} is in the repository; golden outputs are not kept there", file=sys.stderr)
        return 2
    work = Path(tempfile.mkdtemp(prefix="contract-", dir="/tmp"))
    try:
        place = Place(work / "tree", work / "inputs", work / "work")
        for path in (place.tree, place.work):
            path.mkdir()
        _copy(commit, place.tree)
        if inputs:
            shutil.copytree(inputs / ".inputs", place.inputs, symlinks=True)
        else:
            _make_inputs(place)
        shutil.rmtree(folder / ".inputs", ignore_errors=True)
        shutil.copytree(place.inputs, folder / ".inputs", symlinks=True)
        (work / "commands.json").touch()
        _probe(place, "commands", work / "commands.json")
        place.commands.extend(json.loads((work / "commands.json").read_text()))
        for part in parts or [*PARTS, *FUNCTIONS]:
            begin = time.monotonic()
            answers = work / "answers" / part
            answers.mkdir(parents=True)
            _answer(place, part, answers)
            shutil.rmtree(folder / part, ignore_errors=True)
            count = _keep(answers, folder / part)
            print(f"{part}: {count} files, {time.monotonic() - begin:.0f} s", flush=True)
    finally:
        shutil.rmtree(work)
    return 0


def _copy(commit: str | None, tree: Path) -> None:
    git = ["git", "-C", str(PROJECT)]
    if commit:
        packed = subprocess.run([*git, "archive", commit], check=True, stdout=subprocess.PIPE).stdout
    else:
        ls_files = [*git, "ls-files", "-z", "-co", "--exclude-standard"]
        listed = subprocess.run(ls_files, check=True, stdout=subprocess.PIPE).stdout.split(b"\0")
        names = [name for name in listed if name and os.path.lexists(PROJECT / os.fsdecode(name))]
        tar = ["tar", "-C", str(PROJECT), "--null", "-T", "-", "-c"]
        packed = subprocess.run(tar, input=b"\0".join(names), check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=packed, check=True)


def _environment(place: Place) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {
        "PYTHONPATH": str(place.tree), "PYTHONHASHSEED": "0", "COLUMNS": "120", "TZ": "UTC", "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "VMTOLL_STATE": str(place.work / "state"), "VMTOLL_CACHE": str(place.work / "cache"),
        "CONTRACT_INPUTS": str(place.inputs), "SOURCE_DATE_EPOCH": "1767225600",
    }  # fmt: skip


def _probe(place: Place, *words: object, network: bool = False, total: int = 0) -> None:
    """Run the probe in the tree, without a network unless it needs one; show how far it is on a terminal's line."""
    alone = [] if network or os.geteuid() else ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    argv = [*alone, sys.executable, str(PROBE), *map(str, words)]
    with subprocess.Popen(argv, cwd=place.work, env=_environment(place), stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdout is not None
        for number, line in enumerate(probe.stdout, start=1):
            if total > 20 and (number % 20 == 0 or number == total):
                print(f"  {number} of {total}: {line.strip()}", file=sys.stderr, flush=True)
    if probe.returncode:
        raise SystemExit(f"the probe failed: {' '.join(map(str, words))} (exit code {probe.returncode})")


def _make_inputs(place: Place) -> None:
    place.inputs.mkdir()
    shutil.copytree(place.tree / "results", place.inputs / "results")
    _probe(place, "inputs", place.inputs)
    tests = [f"tests/unit/{name}" for name in HARVESTED if (place.tree / "tests/unit" / name).is_dir()]
    environment = _environment(place) | {"PYTHONPATH": f"{place.tree}:{PROBE.parent}"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "probe", "-p", "no:cacheprovider", "-m", "not slow", "-n", "2",
            "--dist", "loadfile", *tests]  # fmt: skip
    done = subprocess.run(argv, cwd=place.tree, env=environment, check=False, capture_output=True, text=True)
    print(f"inputs: {done.stdout.strip().splitlines()[-1:]} harvested", file=sys.stderr)


def _answer(place: Place, part: str, answers: Path) -> None:
    if part in PARTS:
        for jobs in PARTS[part](place):
            file = place.work / f"{part}.json"
            file.write_text(as_json(jobs, answers), "utf-8")
            _probe(place, "jobs", file, total=len(jobs))
    elif part == "machine":
        machine.write(place.tree, answers, _environment(place))
    elif part == "diagnosis":
        _probe(place, "diagnosis", place.inputs / "guests", answers)
    elif part == "agent":
        _probe(place, "agent", answers / "operations.txt")
    elif part == "outcomes":
        for run in (*place.committed, *place.simulated):
            (answers / run.parent.name).mkdir()
        _probe(place, "outcomes", answers, *place.committed, *place.simulated)
    else:
        (answers / "reference").mkdir()
        argv = [sys.executable, "-m", "vmtoll.spec.reference", str(answers / "reference")]
        subprocess.run(argv, cwd=place.work, env=_environment(place), check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(place.tree / "results" / "schema", answers / "schema")


def _keep(answers: Path, folder: Path) -> int:
    """Copy what is text, without what varies; return the number of files. A spreadsheet becomes its members."""
    count = 0
    for path in sorted(path for path in answers.rglob("*") if path.is_file() and not path.is_symlink()):
        target = folder / path.relative_to(answers)
        if path.suffix in BINARY or path.name in BINARY or path.stat().st_size == 0:
            continue
        texts = {target: path.read_bytes()}
        if path.suffix == ".ods":
            with zipfile.ZipFile(path) as packed:
                texts = {target / name: packed.read(name) for name in packed.namelist()}
        for file, data in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(normal(data.decode("utf-8", errors="backslashreplace")), "utf-8")
            count += 1
    return count


def normal(text: str) -> str:
    """Put a word in the place of each thing that varies."""
    for pattern, word in VARIES.values():
        text = re.sub(pattern, word, text)
    return text


if __name__ == "__main__":
    sys.exit(main())
