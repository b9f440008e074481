"""What staff use: build and release labs, grade submissions, report, and make the students' bundle.

A submission's way: `intake` reads it, `execute` runs it, `grade` scores it through nbgrader, `report` tells.
"""
