"""Simulated students of a class on a hub: what `benchmarks/hub.py` and its test run.

`plan` says who does what when, `answers` what they hand in, `browser` asks as a browser does, `student` is one
student's afternoon, `klass` the class around them, `counting` what became of their hand-ins, `load` all of it.
"""
