"""The protocol of the paper that this project started from, as the paper gives it: the baseline of every comparison.

Additive sharing with Beaver triples, public division through the number of wraps, binary sharing, conversion between
the two, and what is made of these. `docs/paper-suite.md` explains the rounds. The protocol of choice is in `mpc`.
"""
