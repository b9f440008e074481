# kind: wrong
# about: full_parameters gathers, and leaves everything gathered.
# loses: zero3_rest
# says: "zero3_rest": "after full_parameters()"

# %% edit="zero_three"
# replace
        for unit in units:
            unit.free()
        return whole
# by
        return whole
