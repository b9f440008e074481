# kind: right
# about: All three cells are empty: the course's own parts stand in.

# %% solution="my_layers"
def my_layers():
    # YOUR CODE HERE
    raise NotImplementedError()

# %% solution="my_cache"
def my_cache():
    # YOUR CODE HERE
    raise NotImplementedError()

# %% solution="my_scheduler"
def my_scheduler():
    # YOUR CODE HERE
    raise NotImplementedError()
