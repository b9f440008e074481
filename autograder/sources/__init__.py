"""Text sources of notebooks and labs: read them, hold them to a lab's rules, build notebooks from them."""

from autograder.sources.build import build_lab, build_notebook
from autograder.sources.cells import Cell, Source, SourceError, read_source

__all__ = ["Cell", "Source", "SourceError", "build_lab", "build_notebook", "read_source"]
