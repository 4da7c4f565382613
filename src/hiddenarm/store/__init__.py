"""Durable records of a role: one contract, kept in memory, in SQLite or in PostgreSQL, and commits in groups. Knows
nothing of bandits."""
