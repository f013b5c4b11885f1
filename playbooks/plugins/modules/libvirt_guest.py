#!/usr/bin/python
"""Make and start a guest of libvirt, or remove it. Python 3.9, on the KVM host."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: libvirt_guest
short_description: Make and start a guest of libvirt, or remove it
description:
  - C(state=present) makes a guest that is new, or whose domain or host key has changed, on an empty disk on top of an
    image, and starts it. It leaves a guest alone that is as wanted, and starts or resumes one that is off or paused.
  - C(state=absent) ends and forgets the guest and removes its files.
  - A run that was killed in between is finished by the next one. A guest that has started, stopped or gone by itself
    meanwhile, as libvirt starts guests again when their host has booted, is what was wanted.
options:
  name:
    description: Name of the guest's files.
    type: str
    required: true
  domain:
    description: libvirt's name of the guest; empty for C(name).
    type: str
    default: ""
  state:
    description: Make it or remove it.
    type: str
    choices: [present, absent]
    default: present
  virsh:
    description: The words of virsh with its options, in English.
    type: list
    elements: str
    required: true
  folder:
    description: Folder of the guests' definitions, disks and host keys; made where it is missing.
    type: path
    required: true
  xml:
    description: The guest's libvirt domain.
    type: str
    default: ""
  host_key:
    description: Private key that the guest's SSH server proves itself by.
    type: str
    default: ""
  image:
    description: The disk that the guest's own disk lies on.
    type: path
    default: ""
"""

# The host key is a file and not in the domain: QEMU's command line has the domain's texts, and every user can read it.
PARTS = ("xml", "host_key", "qcow2")
# Files of a separate kernel, which the role has copied: NAME.vmlinuz-DIGEST. The domain names those in use.
KERNEL_PARTS = ("vmlinuz", "initrd")


class GuestError(Exception):
    """A command that failed, with the last line that it printed."""


class Guest:
    """A guest of libvirt: its domain, and its files in a folder."""

    def __init__(self, parameters: dict[str, Any], *, check: bool) -> None:
        self.name = parameters["domain"] or parameters["name"]
        self.folder = Path(parameters["folder"])
        self.kernel_stem = parameters["name"]
        self.files = {part: self.folder / f"{parameters['name']}.{part}" for part in PARTS}
        self.texts = {part: parameters[part] for part in ("xml", "host_key")}
        self.image = parameters["image"]
        self.virsh = parameters["virsh"]
        self.check = check
        self.done: list[str] = []

    def present(self) -> None:
        """Make the guest if it is new or differs from what is wanted, and start it. Raises GuestError, OSError."""
        state = self._state()
        if not state or any(self._differs(part) for part in self.texts):
            self._make(state)
            state = "shut off"
        if state != "running":
            self._virsh(f"start {self.name}", ("start", "resume"), harmless_errors=("already",))

    def absent(self) -> None:
        """Stop and undefine the guest, and remove its files. Raises GuestError, OSError."""
        if self._state():
            verbs, harmless = ("destroy", "undefine"), ("domain is not running", "failed to get domain")
            self._virsh(f"remove {self.name}", verbs, harmless_errors=harmless)
        kernels = [file for part in KERNEL_PARTS for file in self.folder.glob(f"{self.kernel_stem}.{part}-*")]
        for file in (*self.files.values(), *(kernel for kernel in kernels if str(kernel) not in self.texts["xml"])):
            if file.exists():
                self.done.append(f"remove {file}")
                if not self.check:
                    file.unlink()

    def _make(self, state: str) -> None:
        """Make the guest. Validates the new domain first: one that breaks libvirt's schema must not cost a guest."""
        if not self.check:  # in check mode, a new host has no libvirt yet
            run(["virt-xml-validate", "-", "domain"], self.texts["xml"])
        if state or any(file.exists() for file in self.files.values()):
            self.absent()  # libvirt accepts no second domain of the same name
        self.done.append(f"make {self.name}")
        if self.check:
            return
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            self.folder.chmod(0o711)
        for part, text in self.texts.items():
            write(self.files[part], text)
        disk = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", self.image]
        run([*disk, str(self.files["qcow2"])])
        run([*self.virsh, "define", str(self.files["xml"])])

    def _state(self) -> str:
        """The guest's state in libvirt's words; empty if there is no such guest, or in check mode no libvirt yet.

        Raises GuestError if libvirt does not answer: a guest that is not seen must not lose its disk.
        """
        try:
            return run([*self.virsh, "domstate", self.name])
        except GuestError as error:
            if self.check or "failed to get domain" in str(error):
                return ""
            raise

    def _differs(self, part: str) -> bool:
        """Return whether a file's text differs; its owner may: libvirt makes it QEMU's user while the guest runs."""
        try:
            return self.files[part].read_text() != self.texts[part]
        except FileNotFoundError:
            return True

    def _virsh(self, step: str, verbs: tuple[str, str], harmless_errors: tuple[str, ...]) -> None:
        """Run these verbs of virsh on the guest. If it is in that state already, that is no error and no change."""
        changed = self.check
        for verb in () if self.check else verbs:
            try:
                run([*self.virsh, verb, self.name])
                changed = True
            except GuestError as error:
                if not any(words in str(error) for words in harmless_errors):
                    raise
        if changed:
            self.done.append(step)


def run(argv: list[str], stdin: str = "") -> str:
    """Run a command; return what it printed. Raises GuestError."""
    done = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    printed = done.stdout.strip()
    if done.returncode:
        last = printed.splitlines()[-1] if printed else f"exit status {done.returncode}"
        raise GuestError(f"{' '.join(argv)}: {last}")
    return printed


def write(file: Path, text: str) -> None:
    """Write a file that only root can read, whole or not at all."""
    partial = file.with_name(f"{file.name}.partial")
    partial.touch(mode=0o600)
    partial.write_text(text)
    partial.replace(file)


def main() -> None:
    spec = {
        "name": {"type": "str", "required": True},
        "domain": {"type": "str", "default": ""},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "virsh": {"type": "list", "elements": "str", "required": True},
        "folder": {"type": "path", "required": True},
        "xml": {"type": "str", "default": ""},
        "host_key": {"type": "str", "default": "", "no_log": True},
        "image": {"type": "path", "default": ""},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    guest = Guest(module.params, check=module.check_mode)
    try:
        (guest.present if module.params["state"] == "present" else guest.absent)()
    except (GuestError, OSError) as error:
        module.fail_json(msg=f"{guest.name}: {error}")
    diff = {"before": "", "after": "".join(f"{step}\n" for step in guest.done)}
    module.exit_json(changed=bool(guest.done), diff=diff)


if __name__ == "__main__":
    main()
