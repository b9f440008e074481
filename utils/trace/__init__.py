"""Seeing what ranks said to each other: the journal, the traced process group, diagnosis and pictures.

`journal` is the shared memory each rank writes and the kernel reads; `group` the process group that writes it, through
`recorder`;
`events` what a reader gets; `matching` pairs sends with receives and collectives with each other; `diagnose` proves
deadlocks and finds mismatches; `report` says it in words; `plot` and `perfetto` draw it.
"""
