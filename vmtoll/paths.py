"""Paths of the program and its data. CACHE and STATE lie outside of the checkout, so a fresh clone finds what an
earlier one made.
"""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PLAYBOOKS = PROJECT / "playbooks"
LOAD_TOOLS = PROJECT / "vmtoll" / "loadgen"
SERVER_BUILDS = PROJECT / "server-builds"
VM_IMAGES = PROJECT / "vm-images"
RESULTS = PROJECT / "results"

CACHE = Path(os.environ.get("VMTOLL_CACHE", "/var/cache/vmtoll"))
STATE = Path(os.environ.get("VMTOLL_STATE", "/var/lib/vmtoll"))
LAB = STATE / "lab"
INVENTORY = LAB / "inventory.yml"
