"""HTTP: what a role serves to its own organisation, and clients for it. The extra `http` has the libraries."""
