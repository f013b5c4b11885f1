"""Ask QEMU's monitor on a host: connect, ask, close.

A QMP socket serves one client at a time, and others need it, such as Proxmox' daemon. So no connection stays open.
"""

import asyncio
import logging
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from qemu.qmp import ExecuteError, QMPClient, QMPError

from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

_LIMIT_S = 20.0
# It logs what it raises as well.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)

# Connects a socket of the host with stdin and stdout. ssh would open a forwarded socket as the user who logs in,
# which with sudo is not root, and sshd may allow no forwarding. It ends when either side does.
_BRIDGE = """\
import os, socket, sys, threading
monitor = socket.socket(socket.AF_UNIX)
try:
    monitor.connect(sys.argv[1])
except OSError as error:
    sys.exit(error.strerror)
def send():
    while data := os.read(0, 65536):
        monitor.sendall(data)
    os._exit(0)
threading.Thread(target=send, daemon=True).start()
while data := monitor.recv(65536):
    os.write(1, data)
os._exit(0)
"""
Command = tuple[str, Mapping[str, Any]]


def ask(host: Host, path: str, *commands: str | Command) -> list[Any]:
    """Execute commands in QEMU, which listens on this socket of a host; return their results.

    The result of a command that QEMU refuses is an ExecuteError. Raises AgentError when QEMU does not answer.
    """
    return asyncio.run(
        _ask(host, path, [(command, {}) if isinstance(command, str) else command for command in commands])
    )


def ask_one(host: Host, path: str, command: str, **arguments: Any) -> Any:
    """Execute a command; return its result. Raises AgentError when QEMU does not answer, or refuses it."""
    (answer,) = ask(host, path, (command, arguments))
    if isinstance(answer, ExecuteError):
        raise AgentError(f"{host.name}: QMP at {path}: {command}: {answer}", host.name)
    return answer


def ask_accepted(host: Host, path: str, *commands: str | Command) -> dict[str, Any]:
    """Execute commands; return the results of those that QEMU accepts. Raises AgentError when it does not answer."""
    names = [command if isinstance(command, str) else command[0] for command in commands]
    answers = zip(names, ask(host, path, *commands), strict=True)
    return {name: answer for name, answer in answers if not isinstance(answer, ExecuteError)}


async def _ask(host: Host, path: str, commands: Sequence[Command]) -> list[Any]:
    ours, theirs = socket.socketpair()
    end = theirs.fileno()
    with subprocess.Popen(_argv(host, path), stdin=end, stdout=end, stderr=subprocess.PIPE) as bridge:
        theirs.close()
        client = QMPClient("vmtoll")
        try:
            async with asyncio.timeout(_LIMIT_S):
                await client.connect(ours)
                return [await _execute(client, command, arguments) for command, arguments in commands]
        except TimeoutError as error:
            why = f"no answer within {_LIMIT_S:g} s; it serves one client: close another one's monitor"
            raise AgentError(f"{host.name}: QMP at {path}: {why}", host.name) from error
        except (QMPError, OSError, EOFError) as error:
            raise AgentError(f"{host.name}: QMP at {path}: {await _reason(bridge, error)}", host.name) from error
        finally:
            with suppress(QMPError, OSError, EOFError):
                await client.disconnect()
            ours.close()
            _end(bridge)


async def _execute(client: QMPClient, command: str, arguments: Mapping[str, Any]) -> Any:
    try:
        return await client.execute(command, dict(arguments))
    except ExecuteError as error:
        return error


async def _reason(bridge: "subprocess.Popen[bytes]", error: BaseException) -> str:
    """What the other side said last, else what the library says."""
    with suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(bridge.wait, 5)
    words = b"" if bridge.poll() is None or bridge.stderr is None else bridge.stderr.read()
    lines = words.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else str(error)


def _argv(host: Host, path: str) -> list[str]:
    words = ["-u", "-c", _BRIDGE, path]
    return [*host.argv(), *(words if host.is_local else map(shlex.quote, words))]


def _end(bridge: "subprocess.Popen[bytes]") -> None:
    """It ends by itself when our end is closed."""
    with suppress(subprocess.TimeoutExpired):
        bridge.wait(2)
        return
    bridge.kill()
