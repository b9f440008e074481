# student: Ben Lindqvist
# about: handed in as it was released
# base: blank
# loses: all
# says: "ring_sum": "not answered yet"
# %% solution="broadcast"
def broadcast(x: torch.Tensor, src: int) -> None:
    # YOUR CODE HERE
    raise NotImplementedError()
