"""Durable records of a role: one contract, kept in memory or in SQLite, and commits in groups. Knows nothing of
bandits."""
