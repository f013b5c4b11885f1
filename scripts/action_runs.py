"""Usage: python scripts/action_runs.py FILE — each `run:` of a composite action by shellcheck.

An expression `${{ … }}` inside of `run:` is refused: the shell would read what a stranger wrote into a pull request as
code. Expressions belong into `env:`.
"""

import subprocess
import sys
from pathlib import Path

import yaml


def main(file: str) -> int:
    status = 0
    for number, step in enumerate(yaml.safe_load(Path(file).read_text(encoding="utf-8"))["runs"]["steps"], start=1):
        run = step.get("run", "")
        if "${{" in run:
            print(f"{file}: step {number}: run: has an expression ${{{{ … }}}}; pass it by env:", file=sys.stderr)
            status = 1
        elif run:
            argv = ["shellcheck", f"--shell={step['shell']}", "-"]
            done = subprocess.run(argv, input=run, text=True, check=False, stdout=sys.stderr)
            if done.returncode:
                print(f"{file}: step {number}: run: see above", file=sys.stderr)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
