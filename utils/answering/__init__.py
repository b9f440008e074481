"""The side that answers when a submission is graded: it runs the student's cells and, beside them, the tests' probes.

`serve` speaks frames over one socket with the grader, who runs no student code. Whatever is done to this process, the
grader reads plain data from it and nothing else. Students need nothing from here.
"""
