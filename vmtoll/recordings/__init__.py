"""Values that other benchmarks wrote: judge files, and what their tools write."""
