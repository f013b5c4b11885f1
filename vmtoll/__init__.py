"""The command-line program: the only package that knows provisioning, runner and analysis."""
