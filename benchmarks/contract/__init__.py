"""The contract of a redesign: all that the program answers to fixed inputs, written by one commit and by another.

`parts` says what is asked. `probe` runs in the tree that answers, and is the only module that imports it. `compare`
shows the differences of two folders.
"""
