"""What the controller builds once for the machines: servers, sites, load tools."""
