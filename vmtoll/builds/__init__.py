"""What the controller builds for the machines: servers, sites, load tools, images."""
