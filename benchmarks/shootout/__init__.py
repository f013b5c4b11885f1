"""The shoot-out: rules that say whether two benchmarks differ, on recordings whose truth is known.

`python -m benchmarks.shootout COMMAND`, in this order:

    pilot       record 30 pages that do not count, choose length and blocks by them, and write the plan
    record      record the pages of the plan; goes on where it stopped or was killed
    judge       let every rule judge the recordings; write the tables in docs/shoot-out.md
    hyperfine   compare `vmtoll judge --run A --run B` with hyperfine, and write that table

A page is one recording of two commands in its own stretch of time, in the interleaved order of `vmtoll judge --run`.
docs/shoot-out.md says what is measured and how a rule is wrong.
"""
