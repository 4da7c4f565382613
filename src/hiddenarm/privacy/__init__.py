"""What released actions tell about one row of data, as pure mathematics: it knows no learner, no share and no role."""
