"""Instructions per request, counted on an emulated host."""
