"""Fixtures of projects, and of machines that all run on this one."""

import signal
from collections.abc import Generator

import pytest

from tests.support.machines import inventory, load_tools, project, rewrite, unlimited_client
from tests.support.real_servers import readable_folder
from tests.support.users_state import guarded

__all__ = ["inventory", "load_tools", "project", "readable_folder", "rewrite", "unlimited_client"]

# A shell starts background jobs with SIGINT ignored, and their children inherit that: tests that send it would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import the modules of tests without reading a user's runs."""
    with guarded():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Run each test so. The cache of load tools and servers may be read: its names say what each file was made of."""
    with guarded():
        return (yield)
