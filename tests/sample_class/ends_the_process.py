# student: Femi Adeyemi
# about: a cell of his ends the whole process
# loses: tree_values, tree_rounds
# says: "tree_values": "your code ended the process in cell"
# note: "your code ended the process in cell"
# %% solution="tree_broadcast"
import os

def tree_broadcast(x: torch.Tensor, src: int) -> None:
    raise NotImplementedError()

os._exit(0)
