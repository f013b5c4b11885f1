"""Runs that the repository carries: that of the demo, and one of an earlier version."""

from vmtoll.paths import PROJECT

DEMO = PROJECT / "results" / "demo" / "20261123T050551Z-9a22"
# A run of an earlier version, which recorded less of its machines.
OLDER = PROJECT / "results" / "event-servers-2008" / "20261121T184148Z-4361"
