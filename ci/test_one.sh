#!/usr/bin/env bash
# test_one.sh NAME: runs the tests whose names contain NAME, in every suite, or the row NAME of
# tests/hostile. Exits with 1 if a test fails or no test has the name.
set -euo pipefail
shopt -s nullglob
name=${1:?is missing: make test-one T=name}
suites=(--lib --bins --examples)
for path in {.,crates/*}/tests/{*.rs,*/main.rs}; do
    suite=${path%/main.rs}
    suite=$(basename "$suite" .rs)
    # That suite has rows, not names.
    [ "$suite" = hostile ] || suites+=(--test "$suite")
done
[[ ! $name =~ ^[A-Z][0-9]*$ ]] || suites=(--test hostile)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${CARGO:-cargo}" test --locked --no-fail-fast "${suites[@]}" -- "$name" --color=never | tee "$log"
# A test of libtest or a row of tests/hostile.
if ! grep -qE '^test .* \.\.\. ok|^[A-Z][0-9]+ +held ' "$log"; then
    echo "no test has '$name' in its name" >&2
    exit 1
fi
