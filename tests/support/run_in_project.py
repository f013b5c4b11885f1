"""`vmtoll run` on another project folder: python run_in_project.py FOLDER run EXPERIMENT …; it writes no report."""

import argparse
from pathlib import Path

from vmtoll import cli
from vmtoll.commands.run import run_one
from vmtoll.spec.catalog import Registry

parser = argparse.ArgumentParser()
parser.add_argument("project", type=Path)
parser.add_argument("command", choices=["run"])
parser.add_argument("experiment")
parser.add_argument("--inventory", type=Path)
parser.add_argument("--results", type=Path)
parser.add_argument("--limit")
parser.add_argument("--scale")
parser.add_argument("--resume", type=Path)


def run() -> None:
    words = vars(parser.parse_args())
    del words["command"]
    registry = Registry(words.pop("project"))
    print(f"run: {run_one(**words, registry=registry)}")


if __name__ == "__main__":
    cli.main(run)
