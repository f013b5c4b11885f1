"""Fixtures that need no process."""

from tests.support.machines import project, rewrite

__all__ = ["project", "rewrite"]
