"""Capacity planning: how many machines an objective takes, by what a run measured."""
