#!/bin/sh
# Makes the repositories of the example Cases and puts the oracle and what the graders share with examples/tasks
# beside the case files.
#
#     fetch.sh NAME...
#
# A repository has one commit, the release. Its hash is written here: other files would have another one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tasks=$here/../tasks
"$tasks/fetch.sh" "$@"

# commit NAME DATE HASH: makes NAME/repository.
commit() {
    repository=$here/$1/repository
    rm -rf "$repository"
    cp -R "$tasks/$1/repository" "$repository"
    chmod -R u+rwX,go+rX,go-w "$repository"
    find "$repository" -type f -exec chmod 0644 {} +
    (
        cd "$repository"
        export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
        export GIT_AUTHOR_NAME=release GIT_AUTHOR_EMAIL=release@localhost GIT_AUTHOR_DATE="$2"
        export GIT_COMMITTER_NAME=release GIT_COMMITTER_EMAIL=release@localhost GIT_COMMITTER_DATE="$2"
        git init -q -b main --object-format=sha1
        git add --all --force
        git commit -q -m "The release"
    )
    found=$(git -C "$repository" rev-parse HEAD)
    [ "$found" = "$3" ] || {
        echo "$1: the commit is $found, not $3" >&2
        exit 1
    }
    cp "$tasks/$1/solution.patch" "$here/$1/solution.patch"
}

for name in "$@"; do
    case $name in
    python-h11) commit "$name" 2025-01-03T00:00:00Z 421fc5740d5131d90020bb3c06bda7ac6415ec20 ;;
    javascript-minimist) commit "$name" 2020-03-12T00:00:00Z c61eb857302a2cf64e9e1ea3b6c351b3b4b0b58d ;;
    go-semver)
        commit "$name" 2024-08-28T00:00:00Z 293dbc37e2c81cf9d87adb2ac9298a492d77c10a
        cp "$tasks/$name/tests/zeros_test.go" "$here/$name/zeros_test.go"
        ;;
    *)
        echo "fetch.sh: no example $name" >&2
        exit 2
        ;;
    esac
done
