"""What ssh printed when it did not get in, as one sentence with the way out."""

from workloads.runner.inventory import Host

# What ssh prints (its exit code is always 255) → what is the matter, and what to do.
_MEANINGS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one that is known for {address}",
        "if it was installed anew, remove the old one with `ssh-keygen -R {address}`; if not, another machine answers",
    ),
    (
        "Host key verification failed",
        "the host key of {address} is not known here",
        "log in once by hand, `ssh {login}`, and compare the fingerprint",
    ),
    (
        "Permission denied",
        "it refuses the key of {user} ({key})",
        "put the public key into ~/.ssh/authorized_keys there, or mend ansible_user or ansible_ssh_private_key_file",
    ),
    (
        "Could not resolve hostname",
        "the name {address} does not resolve",
        "mend ansible_host in the inventory",
    ),
    (
        "Connection refused",
        "nothing listens on port {port} of {address}",
        "start sshd there, or mend ansible_port",
    ),
)
_UNREACHABLE = (
    "nothing answers at {address}, port {port} ({last})",
    "see that it is switched on, that ansible_host is its address and that no firewall is between",
)


def meaning(host: Host, printed: str) -> tuple[str, str]:
    """(what is the matter, what to do) by what ssh printed on stderr; neither ends in a full stop."""
    address, user = str(host.get("ansible_host", host.name)), str(host.get("ansible_user", ""))
    words = [line.strip() for line in printed.splitlines() if line.strip()]
    said = {
        "address": address,
        "port": host.get("ansible_port", 22),
        "user": user or "this user",
        "login": f"{user}@{address}" if user else address,
        "key": host.get("ansible_ssh_private_key_file", "the one that ssh takes by itself"),
        "last": words[-1] if words else "no word from ssh",
    }
    for sign, matter, advice in _MEANINGS:
        if sign.lower() in printed.lower():
            return matter.format(**said), advice.format(**said)
    matter, advice = _UNREACHABLE
    return matter.format(**said), advice.format(**said)
