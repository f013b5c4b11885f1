"""The agent, vmtoll's program on each machine: standard-library Python, piped to `python3` over SSH.

vmtoll sends all modules of this package as text, each after those that it imports (`machines/connection.py`); it
installs nothing. They must run on Python 3.9 and import nothing but the standard library and each other.
"""
