"""The worlds a bandit can live in: data sets turned into contexts, arms and rewards."""
