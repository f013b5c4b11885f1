"""Fixtures of projects, and of machines that all run on this one."""

import signal

from tests.support.machines import inventory, load_tools, project, rewrite, unlimited_client
from tests.support.real_servers import readable_folder

__all__ = ["inventory", "load_tools", "project", "readable_folder", "rewrite", "unlimited_client"]

# A shell starts background jobs with SIGINT ignored, and their children inherit that: tests that send it would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)
