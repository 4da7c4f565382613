"""How all roles open an epoch together."""
