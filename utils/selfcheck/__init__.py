"""The student's own check of a lab's visible tests in a fresh kernel (`python -m utils.selfcheck NOTEBOOK`).

`keeper` holds a kernel and all it starts, `session` runs single cells with limits (`cell`, `outputs`),
`notebook` runs a whole lab and puts into words what happened.
"""
