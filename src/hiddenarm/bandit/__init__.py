"""The bandit: its configuration, the two programs `decide` and `learn`, the plain twin, and a federation in one
process."""
