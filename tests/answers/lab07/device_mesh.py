# kind: wrong
# about: Lets torch's DeviceMesh make the groups; right groups, but making them is the task.
# loses: make_groups_order
# says: "make_groups_order": "no rank called dist.new_group"

# %% solution="make_groups"
def make_groups(shape):
    from torch.distributed.device_mesh import init_device_mesh

    names = tuple("abcdef"[: len(shape)])
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    return [mesh.get_group(name) for name in names]
