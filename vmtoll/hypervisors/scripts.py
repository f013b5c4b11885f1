"""What an operation runs on the KVM host, by a shell."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """`run`: does the operation, and ends with it. `undo`: makes the guest what it was, also if `run` was killed; does
    nothing where there is nothing to undo, and fails where it cannot tell. `prepare`: what `run` needs, done before the
    load, once it is noted how all is undone.
    """

    run: str
    undo: str = ""
    prepare: str = ""
