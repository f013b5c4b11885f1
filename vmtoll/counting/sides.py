"""The sides that `vmtoll count` can count: metal or guest, and changes to it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vmtoll.model.errors import UserError
from vmtoll.spec.catalog import unknown

ENVIRONMENTS = ("metal", "guest")


@dataclass(frozen=True)
class Side:
    """A server, how it is asked, and what differs from the default. `device`: options of the guest's network card;
    `guest_parameters`, `host_parameters`: of the kernels.
    """

    name: str
    environment: str
    path: str = "/4k.html"
    connections: str = "keep"  # or close: one for each request
    vhost: str = "on"
    device: str = ""
    guest_parameters: str = ""
    host_parameters: str = ""

    @property
    def line(self) -> str:
        """The call in plan.sh that measures it (vmtoll/builds/instructions/host.sh)."""
        words = (self.environment, self.path, self.connections, self.vhost, self.device, self.guest_parameters)
        return shlex.join(("measure", *words))


# change → the fields that it sets
CHANGES: Mapping[str, Mapping[str, str]] = {
    "close": {"connections": "close"},
    "64k": {"path": "/64k.html"},
    "host-mitigations-off": {"host_parameters": "mitigations=off"},
    "vhost-off": {"vhost": "off"},
    "event-idx-off": {"device": ",event_idx=off"},
    "guest-mitigations-off": {"guest_parameters": "mitigations=off"},
}
_OF_GUESTS = ("vhost-off", "event-idx-off", "guest-mitigations-off")


def side(name: str) -> Side:
    """The side of a name: `metal`, `guest+vhost-off`, `guest+close+64k`. Raises UserError."""
    environment, *changes = name.split("+")
    if environment not in ENVIRONMENTS:
        raise UserError(unknown("side", environment, ENVIRONMENTS))
    result = Side(name, environment)
    for change in changes:
        if change not in CHANGES:
            raise UserError(f"{name}: {unknown('change', change, tuple(CHANGES))}")
        if environment == "metal" and change in _OF_GUESTS:
            raise UserError(f"{name}: {change} changes a guest; name the side guest+{change}")
        result = replace(result, **CHANGES[change])
    return result
