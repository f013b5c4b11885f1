"""Tests: unit, integration (real processes on this machine), lab (root)."""
