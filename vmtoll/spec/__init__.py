"""Files that users write, read and checked: experiments, workloads, servers, sources and inventories."""
