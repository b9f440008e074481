"""What tests of labs say about raw data: values that ranks hold, their traffic, answers to questions.

Each function returns nothing when all is well and raises `CheckFailed` with one sentence when not: what was
seen, with numbers, and the misconception it looks like. They are used as `utils.check.NAME`.
"""
