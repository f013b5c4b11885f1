"""A run: the plan, its blocks, and each attempt at a trial, until the run is complete."""
