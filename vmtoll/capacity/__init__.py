"""Capacity planning: the number of machines that an objective takes, from a measured run."""
