"""Unit tests: no root, no server, no agent; `make check` runs them."""
