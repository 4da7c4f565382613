"""The ring Z_2^64: fixed-point numbers and keyed randomness. Pure and vectorised; imports nothing above it."""
