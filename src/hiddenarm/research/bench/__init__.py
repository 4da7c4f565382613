"""`hiddenarm bench`: how long private steps take beside the plain twin, and where the time goes.

    session.py     a federation of real processes, with the actor and the rewarder inside this one
    timing.py      blocks of both learners in turn, medians and quartiles
    breakdown.py   what one party does in a step, measured apart
    machines.py    all roles as state machines in this process, each timed
    relay.py       a process that delays every link
    report.py      tables and JSON;  pictures.py  points on logarithmic axes

The commands are in `cli/bench.py`; a new bench gets its command there and a module of its own here.

Ratios to the plain twin, timed in the same minutes on the same machine, travel; microseconds do not.
"""
