"""Tests with real processes on this machine: agents, servers, browsers, Ansible; no root."""
