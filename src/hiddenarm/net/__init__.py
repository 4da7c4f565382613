"""Links between roles: frames, identities, mutual TLS, and the event loop that carries them."""
