#!/bin/sh
# Evaluates every example task: its solution has to resolve it. Without a change the tests that are to pass
# before and after it pass, and no other. Then runs every example Case: nop has to score 0 and the oracle 1.
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

cd ../cases
names=$(printf '%s\n' */case.yaml | xargs -n 1 dirname)
./fetch.sh $names
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
for name in $names; do
    "$cofferdam" case validate "$name"
    status=0
    said=$("$cofferdam" case run "$name" --store-dir "$store" --run-id "$name") || status=$?
    python3 - "$store/cases/$name/results.jsonl" "$status" <<'END' || {
import json, sys
path, status = sys.argv[1:]
with open(path) as lines:
    results = [json.loads(line) for line in lines]
found = {result["harness"]: (result["status"], result["overall_score"], result["overall_passed"]) for result in results}
if status != "0" or found != {"nop": ("done", 0.0, False), "oracle": ("done", 1.0, True)}:
    for result in results:
        print(json.dumps(result, indent=1), file=sys.stderr)
    sys.exit(1)
END
        echo "$name: exit code $status: $said" >&2
        exit 1
    }
    echo "$name: nop scores 0, the oracle 1"
done
