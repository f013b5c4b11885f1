"""Paths of the program, of what it ships, and of the user's own folder.

A checkout has the data beside the package; an installation has it inside, in `_data`. What vmtoll makes and keeps is
elsewhere, so that a fresh clone finds what an earlier one made.
"""

import os
import stat
import tempfile
from itertools import takewhile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
INSTALLED = (PACKAGE / "_data").is_dir()
PROJECT = PACKAGE / "_data" if INSTALLED else PACKAGE.parent
PLAYBOOKS = PROJECT / "playbooks"
LOAD_TOOLS = PACKAGE / "loadgen"
SERVER_BUILDS = PROJECT / "server-builds"
VM_IMAGES = PROJECT / "vm-images"
SITES = PROJECT / "workloads" / "sites"
SHIPPED_RESULTS = PROJECT / "results"

FOLDER_FILE = "lab.yml"  # the inventory that makes a folder a user's own


def user_folder() -> Path | None:
    """The user's own folder: the current one or the nearest above it that has a lab.yml; None if there is none.

    In a folder that every user can write to, such as /tmp, the file may be another user's, and does not count. A
    checkout is nobody's folder, wherever it lies: the search ends there.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        return None
    folders = takewhile(lambda folder: folder != PROJECT, (here, *here.parents))
    return next((folder for folder in folders if _is_own(folder)), None)


def _is_own(folder: Path) -> bool:
    if not (folder / FOLDER_FILE).is_file() or folder == PLAYBOOKS:  # which has a playbook of this name
        return False
    return not folder.stat().st_mode & stat.S_ISVTX


def _results() -> Path:
    if folder := user_folder():
        return folder / "results"
    return Path("results") if INSTALLED else SHIPPED_RESULTS


def _kept(variable: str, of_root: str, xdg: str, of_user: str) -> Path:
    """A folder that outlives the command: where the variable says, root's, or by XDG the user's."""
    if given := os.environ.get(variable):
        return Path(given)
    if os.geteuid() == 0:
        return Path(of_root)
    try:
        return Path(os.environ.get(xdg) or Path.home() / of_user) / "vmtoll"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"vmtoll-{os.geteuid()}"


RESULTS = _results()
CACHE = _kept("VMTOLL_CACHE", "/var/cache/vmtoll", "XDG_CACHE_HOME", ".cache")
STATE = _kept("VMTOLL_STATE", "/var/lib/vmtoll", "XDG_STATE_HOME", ".local/state")
LAB = Path(os.environ.get("VMTOLL_STATE", "/var/lib/vmtoll")) / "lab"
INVENTORY = LAB / "inventory.yml"
