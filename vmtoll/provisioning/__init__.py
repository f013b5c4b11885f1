"""Builds of the controller for the machines: servers, sites, load tools."""
