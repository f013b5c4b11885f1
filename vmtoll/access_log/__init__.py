"""Make a workload from an access log: the requested files, their sizes and frequencies, and the connections.

`read` brings the log into a table without names, `traffic` summarizes it, `files` draws a site with the same sizes and
weights, `make` writes the YAML files that the runner reads. The table holds the log's texts (addresses, paths, queries,
referrers, agents) only as hashes, with a new salt each time. It is in a temporary database, which also holds the lines
that DuckDB rejects, and is removed afterwards. No output has any of these texts or hashes.
"""

from vmtoll.access_log.make import DEADLINE_MS, Options, WrittenWorkload, from_log
from vmtoll.model.errors import LogError

__all__ = ["DEADLINE_MS", "LogError", "Options", "WrittenWorkload", "from_log"]
