"""The roles: party, dealer, actor and rewarder. State machines without I/O, and the kits and processes around them."""
