"""Attacks on what a learner releases, and the bounds on privacy that follow from them.

trials      who takes part in a trial: rows, the candidate, the other world, coins
sequence    the best attack on the sequence of arms, where arms are explored
noisy_sums  the best attack on noisy sums, by an adversary who sees all of them
paper       the attack of the paper on a finished model, in the same frame
evidence    what the scores of trials are worth: curve, rates, intervals, calibration
bounds      a lower bound on epsilon, from trials
commands    `hiddenarm attack` and `hiddenarm audit`
"""
