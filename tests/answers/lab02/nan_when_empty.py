# kind: wrong
# about: D12: divides by zero where no token counts.
# loses: accumulate_values
# says: "accumulate_values": "NaN"

# %% edit="accumulate"
# replace
    total = count[0].clamp(min=1)
# by
    total = count[0]
