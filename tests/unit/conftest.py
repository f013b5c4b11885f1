"""Fixtures that need no process, and the guard of what is a user's."""

from collections.abc import Generator

import pytest

from tests.support.machines import project, rewrite
from tests.support.users_state import KEPT, guarded

__all__ = ["project", "rewrite"]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import the modules of tests without reading what is a user's."""
    with guarded(KEPT):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Run each test so."""
    with guarded(KEPT):
        return (yield)
