"""The agent, vmtoll's program on each machine: standard-library Python, piped to `python3` over SSH.

vmtoll sends the modules named in `MODULES` as text and executes them in that order; it installs nothing. They must
run on Python 3.9 and import nothing but the standard library and each other.
"""

MODULES = (
    "protocol", "machine", "hardware", "facts", "servers", "conditions", "waits", "sampler", "commands", "monitors",
    "domains", "applied", "changed", "mail", "telemetry", "disclosure", "handshake", "main",
)  # fmt: skip
