"""dibs and its peers: the same work, the same machine, one run."""
