"""A run: the plan, the machines, the trials, and their records."""
