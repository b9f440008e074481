#!/bin/sh
# Fills $VENV from requirements.lock and installs the project itself, editable. Called by the Makefile.
# PYTHON is the interpreter to build the environment with, TORCH the locked torch ("torch==..."),
# TORCH_INDEX a wheel index to take torch from first (empty: where pip looks anyway).
set -eu

stop() {
    echo "$1" >&2
    exit 1
}

new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

if [ ! -x "$VENV/bin/python" ]; then
    command -v "$PYTHON" >/dev/null 2>&1 ||
        stop "There is no $PYTHON here: install Python 3.11 or newer, or name one with PYTHON=/path/to/python3."
    "$PYTHON" -c "$new_enough" ||
        stop "$PYTHON is $("$PYTHON" --version 2>&1), and this course needs Python 3.11 or newer: name one with PYTHON=/path/to/python3.11."
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        stop "$PYTHON cannot make virtual environments: install its venv package (on Debian and Ubuntu: apt install python3-venv)."
    echo "Making $VENV with $("$PYTHON" --version); the packages are installed once and take a few minutes."
    "$PYTHON" -m venv "$VENV"
fi
"$VENV/bin/python" -c "$new_enough" ||
    stop "$VENV was made with $("$VENV/bin/python" --version), and this course needs Python 3.11 or newer: remove $VENV and run make again."

if [ -n "$TORCH_INDEX" ]; then
    # Alone: what torch needs comes from the lock, in the locked versions.
    "$VENV/bin/python" -m pip install --no-deps --index-url "$TORCH_INDEX" "$TORCH"
fi
"$VENV/bin/python" -m pip install -r requirements.lock
"$VENV/bin/python" -m pip install --quiet --no-deps --no-build-isolation -e .
