# kind: wrong
# about: Makes new Parameter objects: an optimizer holds the old ones, and the tie is cut.
# loses: broadcast_values
# says: "broadcast_values": "Are shared weights still shared?"

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if module is model.head and name == "weight":
                setattr(module, name, nn.Parameter(model.embed.weight.detach().clone()))
                continue
            new = p.detach().clone()
            dist.broadcast(new, src)
            setattr(module, name, nn.Parameter(new, requires_grad=p.requires_grad))
    for buffer in model.buffers():
        whole = buffer.contiguous()
        dist.broadcast(whole, src)
        buffer.copy_(whole)
