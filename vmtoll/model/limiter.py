"""What kept a trial from answering more requests."""

from vmtoll.model.message import WithText


class Limiter(WithText):
    """HOST_CPU: the guest's threads fill their cores on the host, while the server does not fill the guest's cores.
    HOST_WAIT: the guest's virtual CPUs were able to run almost all the time, and the host ran something else.
    CPU_WAIT: the same of the server's threads on their own machine.
    CONNECTIONS: no resource is full; users, ports or the listen queue allow no more. NOTHING: the rate was reached.
    """

    CLIENT_CPU = "client-cpu", "client CPU"
    LINK = "link"
    SERVER_CPU = "server-cpu", "server CPU"
    HOST_CPU = "host-cpu", "guest's host CPU"
    HOST_WAIT = "host-wait", "no host CPU for the guest"
    CPU_WAIT = "cpu-wait", "no CPU for the server"
    CONNECTIONS = "connections"
    NOTHING = "nothing", "the offered rate"
