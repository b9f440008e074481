# kind: right
# about: Some parts are the student's, others the course's.

# %% solution="my_layers"
def my_layers():
    return {}

# %% solution="my_scheduler"
def my_scheduler():
    return None
