# kind: wrong
# about: The memory limit is ignored.
# loses: best_split_legal
# says: "best_split_legal": "bytes, and a GPU has"

# %% edit="best_split"
# replace
        legal += [split for split in splits if memory(split) <= job.memory_limit]
# by
        legal += [split for split in splits]
