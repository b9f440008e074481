# kind: wrong
# about: Decoding requests get their token on top of max_tokens.
# loses: schedule_budget, schedule_preemption
# says: "schedule_budget": "max_tokens is"
# edits: helper_methods

# %% edit="scheduler"
# replace
        left = self.max_tokens - len(batch)
# by
        left = self.max_tokens
