"""Settings for `nbgrader` and formgrader when they are started in this folder: the same as our own commands use."""

from autograder.course import Course, nbgrader_config

get_config().merge(nbgrader_config(Course.default()))  # noqa: F821 (traitlets gives a config file this name)
