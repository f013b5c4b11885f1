"""What runs in the tree that answers: `python probe.py TASK …`, with that tree first in PYTHONPATH.

`jobs FILE`: run each command line of the program, or function below, in a fork of a process that has loaded it.
`inputs FOLDER`: write the simulated runs. `commands FILE`: list the program's commands. As a plugin of pytest it
harvests the runs, inventories and guests that unit tests make (CONTRACT_INPUTS names the folder).
"""

import gc
import hashlib
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import random
import runpy
import secrets
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What the probe touches inside the program, under each name that it has had; commands need none of it.
FAMILIES = ("vmtoll.analysis.judge",)
LOADERS = ("vmtoll.analysis.run",)
DIAGNOSES = ("vmtoll.guests.diagnosis", "vmtoll.hypervisors.diagnosis")
ANALYSES = ("vmtoll.analysis.verdict",)
OUTCOMES = ("vmtoll.commands.ab", "vmtoll.commands.outcome")
ROOMS = ("commands", "analysis", "report", "publish", "campaign", "capacity")  # loaded once, before the forks
MOST_S = 300  # of a job
SEED = 20260101


def module(names: tuple[str, ...]) -> Any:
    """Load the first of these modules that exists. Raises ModuleNotFoundError."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(names[-1])


# ---- commands


def jobs(file: Path) -> None:
    """Run the chains of jobs, two at a time; print seconds of CPU and name of each job that ends."""
    from vmtoll.__main__ import avoid_emulated_avx2  # noqa: PLC0415

    avoid_emulated_avx2()
    _fix_chance()
    from vmtoll import cli  # noqa: PLC0415

    for name in getattr(cli, "_PANEL_OF", ()):
        cli.load(name)  # in the order in which the help loads them
    for room in ROOMS:
        package = importlib.import_module(f"vmtoll.{room}")
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    chains = json.loads(file.read_text("utf-8"))
    gc.freeze()  # else each fork copies the pages of all objects
    running: dict[int, Any] = {}
    while chains or running:
        while chains and len(running) < 2:
            chain = chains.pop(0)
            pid = os.fork()
            if not pid:
                _child(chain[0])
            running[pid] = chain
        pid, status, used = os.wait4(-1, 0)
        job, *rest = running.pop(pid)
        if rest:
            chains.insert(0, rest)
        Path(job["out"], "exit").write_text(f"{os.waitstatus_to_exitcode(status)}\n", "utf-8")
        print(f"{used.ru_utime + used.ru_stime:.2f}", job["name"], flush=True)


def _child(job: dict[str, Any]) -> None:
    signal.alarm(MOST_S)
    out = Path(job["out"])
    for descriptor, path in enumerate([Path(os.devnull), out / "stdout", out / "stderr"]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    _read_inventories_here()
    families = _record_families()
    sys.argv = ["vmtoll", *job["argv"]]
    code: Any = 1
    try:
        if job["argv"][0].startswith("@"):
            FUNCTIONS[job["argv"][0]](*map(Path, job["argv"][1:]))
        else:
            from vmtoll import cli  # noqa: PLC0415

            cli.main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        if isinstance(code, str):
            sys.stderr.write(code + "\n")
        if families:
            (out / "families").write_text(json.dumps(families, indent=1) + "\n", "utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _fix_chance() -> None:
    """Let every draw of this process be the same in each writing: the order of trials, and ids."""
    source = random.Random(SEED)
    fixed: dict[str, Callable[[int], Any]] = {
        "randbelow": source.randrange,
        "token_hex": lambda size: f"{source.getrandbits(8 * size):0{2 * size}x}",
    }
    vars(secrets).update(fixed)


def _record_families() -> list[dict[str, Any]]:
    """Note each family that is judged from now on: its size, weights, shares and p-values, to 12 digits."""
    judge = module(FAMILIES)
    families: list[dict[str, Any]] = []
    real = judge.Family.judge

    def number(value: Any) -> Any:
        return f"{float(value):.12g}"

    def recorded(self: Any) -> Any:
        families.append(
            {
                "size": len(self.evidence),
                "margin": self.margin,
                "correlation": [number(weight) for weight in self.correlation],
                "members": [
                    {
                        "metric": str(getattr(evidence.metric, "name", evidence.metric)),
                        "weight": number(weight),
                        "share": number(evidence.share),
                        "difference": _adjusted(different, number),
                        "equivalence": _adjusted(equal, number),
                    }
                    for evidence, weight, different, equal in zip(
                        self.tested, self.weights, self.difference, self.equivalence, strict=True
                    )
                ],
            }
        )
        return real(self)

    judge.Family.judge = recorded
    return families


def _adjusted(values: Any, number: Callable[[Any], Any]) -> dict[str, Any]:
    named = {name: getattr(values, name) for name in getattr(values, "__dataclass_fields__", ())}
    named = named or (values._asdict() if hasattr(values, "_asdict") else {"p": values})
    return {name: number(value) if isinstance(value, float) else str(value) for name, value in named.items()}


# ---- inputs


def inputs(folder: Path) -> None:
    """Write the simulated runs that commands read, by the tree's tests/support."""
    from tests.support import logs, nights, older_schema, synthetic_run, testbed_runs, tuning_run  # noqa: PLC0415
    from tests.support.synthetic_run import Truth, closed_load, rate_load, share_load  # noqa: PLC0415
    from vmtoll.model.trial import Accelerator  # noqa: PLC0415

    runs, loads = folder / "runs", (closed_load(), rate_load(1000))
    truths = {
        "one-server": Truth(),
        "two-servers": Truth({"nginx": 0.9, "lighttz": 0.5}, histograms=True, loads=loads, latency_ratio=2.0),
        "equal": Truth({"nginx": 1.0}, latency_ratio=1.0, cpu_ratio=1.0, blocks=20, noise=0.002),
        "noisy": Truth(noise=0.2, seed=7),
        "few-blocks": Truth(blocks=3),
        "emulated": Truth({"nginx": 0.05}, accelerator=Accelerator.TCG, status="running"),
        "two-guests": Truth(guests=("kvm-default", "kvm-tuned"), guest_control="kvm-default"),
        "without-metal": Truth(guests=("kvm-default", "kvm-tuned"), metal=False),
        "refused": Truth({"nginx": 0.9, "lighttz": 0.8}, loads=loads, change=testbed_runs.refuse_one),
        "rate-sweep": Truth(loads=tuple(share_load(percent / 10) for percent in range(2, 13, 2)), histograms=True),
    }
    made = {name: synthetic_run.make_run(folder / ".made" / name, truth) for name, truth in truths.items()}
    made["tuning"] = tuning_run.make_tuning(folder / ".made" / "tuning", tuning_run.TuningTruth())
    made["older-schema"] = synthetic_run.make_run(folder / ".made" / "older", Truth(loads=loads))
    older_schema.as_schema_2(made["older-schema"])
    for name, path in made.items():
        shutil.copytree(path, runs / name / path.name)
    for bed, ratio in {"rack-1": 0.9, "rack-2": 0.88, "rack-3": 0.93, "rack-4": 0.86}.items():
        path = testbed_runs.run_of(folder / ".made", bed, ratio)
        shutil.copytree(path, folder / "beds" / bed / path.name)
    nights.make_nights(folder / "nights-level", 8)
    nights.make_nights(folder / "nights-slower", 12, slower_from=6)
    shutil.copytree(made["older-schema"], folder / "older" / "schema-2" / made["older-schema"].name)
    shutil.rmtree(folder / ".made")
    logs.write(folder / "access.log", logs.day(3000))


_counter = itertools.count()


def pytest_configure() -> None:
    """Harvest what unit tests make: runs that they load, inventories, guests that they diagnose."""
    folder = Path(os.environ["CONTRACT_INPUTS"])
    _wrap(module(LOADERS), "load_run", lambda path, *_, **__: _keep_run(folder, Path(path)))
    _wrap(
        importlib.import_module("tests.support.this_machine"), "data", None,
        lambda listed: _keep(folder / "inventories", _as_inventory(listed), "yml"),
    )  # fmt: skip
    _wrap(module(DIAGNOSES), "diagnose", lambda *words, **_: _keep_guest(folder, words))


def _wrap(
    owner: Any, name: str, before: Callable[..., None] | None = None, after: Callable[[Any], None] | None = None
) -> None:
    real = getattr(owner, name)

    def wrapped(*args: Any, **keys: Any) -> Any:
        if before:
            before(*args, **keys)
        result = real(*args, **keys)
        if after:
            after(result)
        return result

    setattr(owner, name, wrapped)


def _keep(folder: Path, text: str, kind: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.{kind}").write_text(text + "\n", "utf-8")


def _as_inventory(listed: dict[str, Any]) -> str:
    """An inventory whose list, as ansible-inventory prints it, is `listed`; see `_listed`."""
    groups: dict[str, Any] = {
        name: {"hosts": {host: listed["_meta"]["hostvars"][host] for host in group["hosts"]}}
        for name, group in listed.items() if name != "_meta"
    }  # fmt: skip
    return json.dumps(groups, indent=1, default=str)


def _read_inventories_here() -> None:
    """Answer for ansible-inventory, which takes a second, where a command asks for a harvested inventory."""
    real = subprocess.run

    def run(argv: Any, *more: Any, **options: Any) -> Any:
        if not (isinstance(argv, list) and str(argv[0]).endswith("ansible-inventory") and "/inventories/" in argv[2]):
            return real(argv, *more, **options)
        groups = json.loads(Path(argv[2]).read_text("utf-8"))
        variables = {host: values for group in groups.values() for host, values in group["hosts"].items()}
        listed: dict[str, Any] = {name: {"hosts": list(group["hosts"])} for name, group in groups.items()}
        listed["_meta"] = {"hostvars": variables}
        return subprocess.CompletedProcess(argv, 0, json.dumps(listed), "")

    vars(subprocess)["run"] = run


def _keep_guest(folder: Path, words: tuple[Any, ...]) -> None:
    if all(isinstance(word, str | dict | None) for word in words):
        _keep(folder / "guests", json.dumps(words, indent=1, sort_keys=True, default=sorted), "json")


def _keep_run(folder: Path, run: Path) -> None:
    if not (run / "run.json").is_file() or "results" not in run.parts or "synthetic" not in run.parts:
        return
    digest = hashlib.sha256()
    for file in sorted(path for path in run.rglob("*") if path.suffix in {".json", ".jsonl"}):
        digest.update(file.name.encode() + file.read_bytes())
    target = folder / "harvested" / digest.hexdigest()[:12] / run.name
    if not target.exists():
        shutil.copytree(run, target)


# ---- functions that no command shows


def agent(output: Path) -> None:
    """Write each operation of the agent, its arguments, the keys of its declared answer, and those of some answers."""
    from vmtoll.agent.main import Agent  # noqa: PLC0415

    made, lines = Agent(), []
    for attribute in sorted(name for name in dir(made) if name.startswith("op_")):
        operation = getattr(made, attribute)
        words = [
            name if parameter.default is inspect.Parameter.empty else f"{name}={parameter.default!r}"
            for name, parameter in inspect.signature(operation).parameters.items()
        ]
        answer = inspect.get_annotations(operation, eval_str=True).get("return")
        keys = getattr(answer, "__annotations__", None)
        lines.append(f"{attribute[3:]}({', '.join(words)}) -> {sorted(keys) if keys else answer}")
    for name in ("hello", "boot", "ping", "changed", "disclosure", "facts"):
        answer = getattr(made, "op_" + name)()
        lines.append(f"answer of {name}: {sorted(answer) if isinstance(answer, dict) else type(answer).__name__}")
    (output / "operations.txt").write_text("\n".join(lines) + "\n", "utf-8")


def diagnosis(folder: Path, output: Path) -> None:
    """Write what the diagnosis says of each recorded guest."""
    diagnose = module(DIAGNOSES).diagnose
    for file in sorted(folder.glob("*.json")):
        try:
            steps = [
                {name: str(getattr(step, name)) for name in step.__dataclass_fields__}
                for step in diagnose(*json.loads(file.read_text("utf-8")))
            ]
        except Exception as error:  # an error is an answer
            steps = [{"error": f"{type(error).__name__}: {error}"}]
        (output / file.name).write_text(json.dumps(steps, indent=1, ensure_ascii=False) + "\n", "utf-8")


def schemas(output: Path) -> None:
    """Write the generated pages of the reference, and the schemas of the tables."""
    tree = Path(sys.path[1])
    shutil.copytree(tree / "results" / "schema", output / "schema")
    (output / "reference").mkdir()
    sys.argv[1:] = [str(output / "reference")]
    runpy.run_module("vmtoll.spec.reference", run_name="__main__")


def outcomes(run: Path, output: Path) -> None:
    """Write the exit code and the JUnit report that `vmtoll ab` has for the run, by each set of figures."""
    ab = module(OUTCOMES)
    loaded = module(LOADERS).load_run(run)
    analysis = module(ANALYSES).analyse(loaded)
    for name, metrics in {"main": (), "cpu": ("cpu",), "tail": ("tail",)}.items():
        try:
            rows = list(ab.counted_verdicts(analysis, metrics))
            code = int(ab.exit_of([verdict for _, verdict in rows]))
            text = f"exit {code}\n{ab.junit_report(loaded, analysis, rows).decode()}\n"
        except Exception as error:  # an error is an answer
            text = f"{type(error).__name__}: {error}\n"
        (output / f"{name}.txt").write_text(text, "utf-8")


def commands(output: Path) -> None:
    """Write the words of each command and group of the program."""
    import typer  # noqa: PLC0415
    from typer.main import get_command  # noqa: PLC0415

    from vmtoll import cli  # noqa: PLC0415

    def words(command: Any, so_far: list[str]) -> list[list[str]]:
        found = [so_far]
        context = typer.Context(command)
        for name in getattr(command, "list_commands", lambda _: [])(context):
            found += words(command.get_command(context, name), [*so_far, name])
        return found

    output.write_text(json.dumps(words(get_command(cli.app), [])), "utf-8")


FUNCTIONS: dict[str, Callable[..., None]] = {
    "@agent": agent, "@diagnosis": diagnosis, "@schemas": schemas, "@outcomes": outcomes,
}  # fmt: skip

if __name__ == "__main__":
    {"jobs": jobs, "inputs": inputs, "commands": commands}[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # else libraries report what they leak
