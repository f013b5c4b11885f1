"""A tuning step of an existing guest as a change that is measured: applied and reverted by turns."""

import shlex

from vmtoll.agent.virsh import called
from vmtoll.model.change import Change
from vmtoll.model.diagnosis import Diagnosis, State, Step, Tuning
from vmtoll.model.errors import UserError

# In the folder of the machine's notes: the definition of a libvirt guest as it was, until it is restored.
BEFORE = "var/lib/vmtoll/{guest}-before.xml"


def change_of(diagnosis: Diagnosis, tuning: Tuning, *, uri: str, root: str = "/") -> Change:
    """The commands, on the guest's host, that take a step on all of the guest's devices which lack it, and go back.

    `uri`: of its libvirt; `root`: folder of the host that contains var. Raises UserError if the guest does not lack the
    step, or has no command that takes it.
    """
    lacking = [step for step in diagnosis.steps if step.tuning is tuning and step.state is State.LACKING]
    if not lacking:
        raise UserError(f"{diagnosis.guest}: --measure {tuning}: {_why_not(diagnosis, tuning)}")
    for step in lacking:
        if not step.apply:
            raise UserError(f"{diagnosis.guest}: --measure {tuning}: {_why_no_command(diagnosis, step)}")
    applied = "; ".join(step.apply for step in lacking)
    if diagnosis.kind == "libvirt":
        before = shlex.quote(root.rstrip("/") + "/" + BEFORE.format(guest=diagnosis.guest.replace("/", "%")))
        guest, virsh = shlex.join(called(diagnosis.guest)), f"virsh -c {shlex.quote(uri)}"
        return Change(
            apply=f"set -e; [ -e {before} ] || {{ {virsh} dumpxml --inactive --security-info {guest} "
            f">{before}.partial && mv {before}.partial {before}; }}; {applied}",
            revert=f"[ ! -e {before} ] || {{ {virsh} define {before} && rm {before}; }}",
            on="host",
            boots=True,
        )
    undone = "; ".join(step.undo for step in reversed(lacking))
    return Change(
        apply=f"set -e; {applied}", revert=f"set -e; {undone}", on="host", boots=diagnosis.kind == "proxmox",
    )  # fmt: skip


def _why_not(diagnosis: Diagnosis, tuning: Tuning) -> str:
    states = {step.state for step in diagnosis.steps if step.tuning is tuning}
    lacking = sorted({str(step.tuning) for step in diagnosis.steps if step.state is State.LACKING})
    offer = f"it lacks {', '.join(lacking)}" if lacking else "it lacks none"
    if not states:
        return f"the guest has no such step; {offer}"
    if State.UNKNOWN in states:
        return f"whether the guest has this step is unknown; {offer}"
    return f"the guest has this step; {offer}" if State.TAKEN in states else f"the guest cannot have it; {offer}"


def _why_no_command(diagnosis: Diagnosis, step: Step) -> str:
    if step.refused:
        return f"libvirt refuses the change: {step.refused}"
    if step.pending:
        return "the guest gets the step at its next start"
    if step.options:
        return (
            f"only what starts the guest can change its command line; start it there with {step.options} "
            f"in place of {step.instead or 'nothing'}, and compare by `vmtoll ab --apply … --revert … --on host`"
        )
    return f"no command takes this step of the guest; see what `vmtoll diagnose {diagnosis.guest}` says of its host"
