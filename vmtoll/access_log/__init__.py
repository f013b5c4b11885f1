"""A workload out of an access log: the requested files, their sizes and frequencies, and the connections.

`read` brings the log into a table without names, `traffic` says what it shows, `files` draws a site of the same
sizes and weights, `write` makes the YAML files that the runner reads. Of the log's texts (addresses, paths, queries,
referrers, agents) only hashes are kept, with a new salt each time, in a temporary database; no output has even those.
"""

from vmtoll.access_log.make import DEADLINE_MS, Made, Options, from_log
from vmtoll.model.errors import LogError

__all__ = ["DEADLINE_MS", "LogError", "Made", "Options", "from_log"]
