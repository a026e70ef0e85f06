#!/bin/sh
# without_wall.sh WALL: runs the hostile rows that need WALL on a build without it; each must break.
# Prints the output at the end, so that of two walls at once does not mix.
# COFFERDAM_BIN is the weakened build, CARGO the cargo to use.
set -u
output=$(HOSTILE_WITHOUT=$1 "${CARGO:-cargo}" test --locked --test hostile 2>&1)
status=$?
printf '%s\n' "$output"
exit "$status"
