"""What people who study or measure the learner use, and a party does not: worlds, benches, experiments, plots.

    data/         worlds to learn in
    demo.py       every role as its own process;  simulate.py  all roles in lockstep
    bench/        how long private steps take beside the plain twin
    experiments/  the paper's evaluation

The libraries that only this folder needs come with the extra `hiddenarm[research]`. Nothing outside imports it but the
commands in `cli`, and those only when they are run.
"""
