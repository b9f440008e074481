# kind: wrong
# about: Flat buffers are float32 whatever the parameters are.
# loses: bucket_values
# says: "bucket_values": "was a less precise number type used on the way?"

# %% edit="bucketed_data_parallel"
# replace
        flat = torch.cat([part.reshape(-1) for part in parts])
# by
        flat = torch.cat([part.reshape(-1) for part in parts]).float()

# replace
                p.grad = part.view_as(p)
# by
                p.grad = part.view_as(p).to(p.dtype)
