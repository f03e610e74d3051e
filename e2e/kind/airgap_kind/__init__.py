"""kind clusters, also where there is neither a Docker engine nor an image registry."""
