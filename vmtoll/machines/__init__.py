"""The machines of a run: their connections, facts, recovery, boots."""
