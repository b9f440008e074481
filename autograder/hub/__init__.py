"""The course on a JupyterHub: `init` makes a class's folder from one YAML file, `doctor` checks it, `run` serves it.

    python -m autograder hub init class.yaml --into /srv/llm
    python -m autograder hub doctor /srv/llm
    python -m autograder hub run /srv/llm
    python -m autograder hub enrol /srv/llm ada --first Ada --last Lovelace

One machine and one course a folder. Larger than that: deploy/README.md.
"""
