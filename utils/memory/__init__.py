"""How many bytes do tensors take, at every moment of a training step? Counted exactly, storage by storage.

    from utils.memory import LiveBytes, alive, saved_bytes

`LiveBytes` follows memory while code runs, `saved_bytes` tells what autograd keeps for the backward pass.
"""

from .live import LiveBytes, alive, nbytes
from .saved import saved_bytes

__all__ = ["LiveBytes", "alive", "nbytes", "saved_bytes"]
