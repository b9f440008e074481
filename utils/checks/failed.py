"""The error of a check: an AssertionError whose text is for a student."""


class CheckFailed(AssertionError):
    """A test's property does not hold; `str(error)` says what was seen in one sentence."""
