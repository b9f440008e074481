# kind: wrong
# about: Always broadcasts from rank 0.
# loses: broadcast_values, broadcast_traffic
# says: "broadcast_values": "broadcast_model from rank 2"
# says: "broadcast_traffic": "only 0 bytes reached rank 0"

# %% solution="broadcast_model"
def broadcast_model(model: nn.Module, src: int = 0) -> None:
    for tensor in [*model.parameters(), *model.buffers()]:
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, 0)
        tensor.detach().copy_(whole)
