#!/usr/bin/env bash
# test_one.sh NAME: runs the tests whose names contain NAME, in every suite. NAME may also be the id of
# a row of tests/hostile. Exits with 1 if a test fails or no test has the name.
set -euo pipefail
name=${1:?names no test: make test-one T=name}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${CARGO:-cargo}" test --locked --no-fail-fast -- "$name" --color=never | tee "$log"
# A passed test of libtest or row of tests/hostile.
if ! grep -qE '^test .* \.\.\. ok$|^[A-Z][0-9]+ +(held|holds)' "$log"; then
    echo "no test's name contains '$name'" >&2
    exit 1
fi
