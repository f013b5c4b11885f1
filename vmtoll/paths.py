"""Where things are. Two roots outside of the checkout, so that a fresh clone finds what an earlier one made."""

import os
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PLAYBOOKS = REPO / "playbooks"
LOAD_TOOLS = REPO / "workloads" / "tools"
SERVER_BUILDS = REPO / "server-builds"
VM_IMAGES = REPO / "vm-images"
RESULTS = REPO / "results"

CACHE = Path(os.environ.get("VMTOLL_CACHE", "/var/cache/vmtoll"))
STATE = Path(os.environ.get("VMTOLL_STATE", "/var/lib/vmtoll"))
LAB = STATE / "lab"
INVENTORY = LAB / "inventory.yml"
