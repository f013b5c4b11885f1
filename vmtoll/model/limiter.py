"""What kept a trial from answering more requests."""

from enum import StrEnum


class Limiter(StrEnum):
    """HOST_CPU: the guest's threads on its host fill their cores, and its server does not fill the guest's.
    CONNECTIONS: no resource is full; the users, ports or the listen queue allow no more. NOTHING: the rate was reached.
    """

    CLIENT_CPU = "client-cpu"
    LINK = "link"
    SERVER_CPU = "server-cpu"
    HOST_CPU = "host-cpu"
    CONNECTIONS = "connections"
    NOTHING = "nothing"
