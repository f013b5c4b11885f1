"""The runner's hands on a machine: standard-library Python, piped to `python3` over SSH.

The modules named in `MODULES` travel as text and are executed in that order; nothing is installed. They must
run on Python 3.9 and import nothing but the standard library and each other.
"""

MODULES = (
    "protocol", "machine", "hardware", "facts", "servers", "conditions", "sampler", "commands", "domains",
    "changed", "mail", "telemetry", "disclosure", "handshake", "main",
)  # fmt: skip
