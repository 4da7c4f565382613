"""`hiddenarm bench`: how long private steps take beside the plain twin, and where the time goes.

    session.py     a federation of real processes, with the actor and the rewarder inside this one, timed
    timing.py      blocks of both learners in turn, medians and quartiles
    breakdown.py   what one party does in a step, measured apart
    relay.py       a process that delays every link
    report.py      tables, JSON, and points on logarithmic axes

    steps.py       `bench step`, `batch`, `arms` and `parties`
    wan.py, dealer.py, operations.py   the commands of the same names

The commands are in `cli/research.py`; a new bench gets its command there and its function here.

Ratios to the plain twin, timed in the same minutes on the same machine, travel; microseconds do not.
"""
