#!/bin/sh
# Evaluates every example task: its solution has to resolve it. Without a change the tests that are to pass
# before and after it pass, and no other.
#
#     test_examples.sh COFFERDAM
set -eu
cofferdam=$1
cd "$(dirname "$0")/../examples/tasks"
names=$(printf '%s\n' */workspace.yaml | xargs -n 1 dirname)
./fetch.sh $names
for name in $names; do
    "$cofferdam" task check "$name"
    for work in "--oracle $name/solution.patch" --nop; do
        status=0
        said=$("$cofferdam" evaluate "$name" $work --json) || status=$?
        tests=$(printf '%s' "$said" | python3 -c '
import json, sys
result = json.load(sys.stdin)
print(*(kind + "=" + str(result[kind]["passed"]) + "/" + str(result[kind]["total"]) for kind in ("fail_to_pass", "pass_to_pass")))')
        case "$work $status $tests" in
        "--oracle $name/solution.patch 0 fail_to_pass=1/1 pass_to_pass=1/1") echo "$name: resolved by its solution" ;;
        "--nop 1 fail_to_pass=0/1 pass_to_pass=1/1") echo "$name: unresolved without it" ;;
        *)
            echo "$name $work: exit code $status" >&2
            printf '%s\n' "$said" >&2
            exit 1
            ;;
        esac
    done
done
