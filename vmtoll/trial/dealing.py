"""Divide a load among several clients, so that their parts add up to its users, requests and URLs."""

import math
from dataclasses import replace

from vmtoll.loadgen import ClosedLoad, OpenLoad, ToolLoad


def deal(load: ToolLoad, clients: int, *, lockstep: bool) -> list[ToolLoad]:
    """The parts of a load, one for each client. `lockstep`: all users of the tool begin at the first line of the list.

    Raises ValueError if there are more clients than users, and for a load that only one machine can send.
    """
    if clients == 1:
        return [load]
    if isinstance(load, OpenLoad):
        return [_deal_open_load(load, client, clients) for client in range(clients)]
    if isinstance(load, ClosedLoad) and load.users >= clients:
        return [_deal_closed_load(load, client, clients, lockstep=lockstep) for client in range(clients)]
    raise ValueError(f"{type(load).__name__} cannot be spread over {clients} clients")


def _deal_open_load(load: OpenLoad, client: int, clients: int) -> OpenLoad:
    """Assign requests round-robin: each client gets every n-th request, so the URLs and their frequencies stay."""
    lines = len(load.urls)
    urls = [load.urls[(client + turn * clients) % lines] for turn in range(lines // math.gcd(lines, clients))]
    requests = len(range(client, load.requests, clients))
    due_ns = None if load.due_ns is None else load.due_ns[client::clients]
    return replace(load, urls=urls, rate_rps=load.rate_rps / clients, requests=requests, due_ns=due_ns)


def _deal_closed_load(load: ClosedLoad, client: int, clients: int, *, lockstep: bool) -> ClosedLoad:
    """One client's users with their requests, and the part of the list that these users walk through."""
    users_before, users_by_then = (load.users * number // clients for number in (client, client + 1))
    users = users_by_then - users_before
    urls = load.urls
    if not lockstep and len(urls) >= load.users:
        urls = urls[len(urls) * users_before // load.users : len(urls) * users_by_then // load.users]
    return replace(load, urls=urls, users=users, requests=math.ceil(load.requests / load.users) * users)
