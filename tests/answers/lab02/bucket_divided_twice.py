# kind: wrong
# about: D11: divided in the hook and again in finish().
# loses: bucket_values, bucket_unused, bucket_no_sync
# says: "bucket_values": "1/2 of what is wanted: divided by the 2 ranks twice"

# %% edit="bucketed_data_parallel"
# replace
        flat = torch.cat([part.reshape(-1) for part in parts])
# by
        flat = torch.cat([part.reshape(-1) for part in parts]) / dist.get_world_size()
