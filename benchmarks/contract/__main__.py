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
from benchmarks.contract.parts import PARTS, Place

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
    names = [*PARTS, "machine"]
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
        commands = place.work / "commands.json"
        _probe(place, "commands", commands)
        for part in parts or PARTS:
            answers = work / "answers" / part
            if part == "machine":
                machine.write(answers, _environment(place))
                cpu_s = 0.0
            else:
                cpu_s = _answer(place, part, answers, json.loads(commands.read_text("utf-8")))
            shutil.rmtree(folder / part, ignore_errors=True)
            print(f"{part}: {_keep(answers, folder / part)} files, {cpu_s:.0f} s of CPU", flush=True)
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
        "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "VMTOLL_STATE": str(place.work / "state"), "VMTOLL_CACHE": str(place.work / "cache"),
        "CONTRACT_INPUTS": str(place.inputs), "SOURCE_DATE_EPOCH": "1767225600",
    }  # fmt: skip


def _probe(place: Place, *words: object, total: int = 0) -> float:
    """Run the probe in the tree, without a network; show how far it is. Returns the seconds of CPU of its jobs."""
    alone = [] if os.geteuid() else ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    argv = [*alone, sys.executable, str(PROBE), *map(str, words)]
    seconds = 0.0
    with subprocess.Popen(argv, cwd=place.work, env=_environment(place), stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdout is not None
        for number, line in enumerate(probe.stdout, start=1):
            cpu_s, name = line.split(maxsplit=1)
            seconds += float(cpu_s)
            if number % 50 == 0:
                print(f"  {number} of {total}: {name.strip()}", file=sys.stderr, flush=True)
    if probe.returncode:
        raise SystemExit(f"the probe failed: {' '.join(map(str, words))} (exit code {probe.returncode})")
    return seconds


def _make_inputs(place: Place) -> None:
    place.inputs.mkdir()
    shutil.copytree(place.tree / "results", place.inputs / "results")
    _probe(place, "inputs", place.inputs)
    tests = [f"tests/unit/{name}" for name in HARVESTED if (place.tree / "tests/unit" / name).is_dir()]
    environment = _environment(place) | {"PYTHONPATH": f"{place.tree}:{PROBE.parent}"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "probe", "-p", "no:cacheprovider", "-m", "not slow", "-n", "2",
            "--dist", "loadfile", *tests]  # fmt: skip
    for git in (["init", "--quiet"], ["add", "--all", "--force", "--intent-to-add"]):  # tests ask git what is committed
        subprocess.run(["git", "-C", str(place.tree), *git], check=True)
    done = subprocess.run(argv, cwd=place.tree, env=environment, check=False, capture_output=True, text=True)
    shutil.rmtree(place.tree / ".git")
    print(f"harvested: {done.stdout.strip().splitlines()[-1]}", file=sys.stderr)
    if done.returncode not in (0, 1):  # 1: a test failed, which an emulated or busy machine may cause
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])


def _answer(place: Place, part: str, answers: Path, commands: list[list[str]]) -> float:
    """Let the tree answer the jobs of this part; returns their seconds of CPU."""
    chains: list[list[dict[str, object]]] = []
    for chain in PARTS[part](place, commands) if part == "help" else PARTS[part](place):
        chains.append([])
        for job in chain:
            out = answers / job.name
            out.mkdir(parents=True, exist_ok=True)
            argv = [word.replace("{out}", str(out)) for word in job.argv]
            chains[-1].append({"name": job.name, "argv": argv, "out": str(out)})
    file = place.work / "jobs.json"
    file.write_text(json.dumps(chains), "utf-8")
    return _probe(place, "jobs", file, total=sum(len(chain) for chain in chains))


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
