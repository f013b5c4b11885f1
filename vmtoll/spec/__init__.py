"""What users write: experiments, workloads, servers, sources and inventories, read and checked."""
