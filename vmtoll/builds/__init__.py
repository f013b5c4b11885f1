"""Build on the controller what the machines need: servers, sites, load tools, images."""
