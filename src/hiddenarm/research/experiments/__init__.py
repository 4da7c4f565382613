"""`hiddenarm reproduce`: the evaluation of the paper, experiment by experiment, as a folder with a page.

    experiment ──jobs──▶ pool ──results──▶ kept on disk ──conclude──▶ figures, tables, claims ──▶ page

An experiment (one module each; `experiment.py` says what it has) says which jobs it needs and what follows from their
results. Jobs that several experiments share are done once; finished ones are kept, so that an interrupted run goes on
where it was.
"""
