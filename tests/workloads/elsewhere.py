"""`vmtoll` on another project folder: python elsewhere.py FOLDER run EXPERIMENT …; it writes no report."""

import sys
from functools import partial
from pathlib import Path

from vmtoll import cli
from workloads.runner.registry import Registry

registry = Registry(Path(sys.argv.pop(1)))
cli.Registry = lambda: registry
cli.plan = partial(cli.plan, registry=registry)
cli.measure = partial(cli.measure, registry=registry)
cli.conclude = lambda folder: f"run: {folder}"

if __name__ == "__main__":
    cli.main()
