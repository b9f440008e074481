#!/bin/sh
# Runs pytest with the arguments given, in a temporary folder of its own: runs side by side must not sweep each other's.
# The tests start thousands of processes on machines that others share. So up to five that fail beside the others are
# run once more, alone, and both results are printed: what fails twice fails the run, what passes alone is named.
set -u

python=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "pytest $*"
"$python" -m pytest --basetemp="$folder/t" -o cache_dir="$folder/cache" --durations=25 --durations-min=4 "$@"
code=$?
[ "$code" = 1 ] || exit "$code"

failed=$folder/cache/v/cache/lastfailed
[ -f "$failed" ] || exit 1
count=$(grep -c '::' "$failed")
if [ "$count" -gt 5 ]; then
    echo "$count tests failed: too many to ask each again."
    exit 1
fi
echo "Failed beside the others, now asked once more, alone:"
grep '::' "$failed"
"$python" -m pytest --basetemp="$folder/t" -o cache_dir="$folder/cache" "$@" -n 0 --last-failed --last-failed-no-failures=none
code=$?
[ "$code" = 0 ] && echo "All $count passed alone; a test named above depends on how busy the machine is, or on chance."
exit "$code"
