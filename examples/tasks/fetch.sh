#!/bin/sh
# Fetches the repositories of the example tasks with the package tool of their language, each release by its
# digest, into NAME/repository.
#
#     fetch.sh NAME...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# unpack ARCHIVE DIGEST NAME: checks the archive and unpacks its only directory.
unpack() {
    echo "$2  $1" | sha256sum --check --quiet
    rm -rf "$here/$3/repository"
    mkdir "$here/$3/repository"
    tar -xf "$1" -C "$here/$3/repository" --strip-components=1 --no-same-owner
}

for name in "$@"; do
    case $name in
    python-h11)
        python3 -m venv "$scratch/venv"
        "$scratch/venv/bin/pip" download --quiet --no-deps --no-binary :all: --dest "$scratch" h11==0.15.0
        unpack "$scratch/h11-0.15.0.tar.gz" \
            2a7db2d2beffd4e6c6bbe3a64305ab77d89087976e8aed8fdcff4b054744e72f "$name"
        ;;
    javascript-minimist)
        (cd "$scratch" && npm pack --silent minimist@1.2.5 >/dev/null)
        unpack "$scratch/minimist-1.2.5.tgz" \
            a1800ce4d39356e96497bd09a41fad0033a13dd8eeb469008333547505ce4350 "$name"
        ;;
    go-semver)
        # Go checks the module against this sum.
        sum=h1:B8LGeaivUe71a5qox1ICM/JLl0NqZSW5CHyL+hmvYS0=
        found=$(cd "$scratch" && GOPATH="$scratch/go" GOFLAGS=-modcacherw \
            go mod download -json github.com/Masterminds/semver/v3@v3.3.0)
        echo "$found" | grep -qF "\"Sum\": \"$sum\"" || {
            echo "$name: another sum: $found" >&2
            exit 1
        }
        rm -rf "$here/$name/repository"
        cp -R "$scratch/go/pkg/mod/github.com/!masterminds/semver/v3@v3.3.0" "$here/$name/repository"
        ;;
    *)
        echo "fetch.sh: no example $name" >&2
        exit 2
        ;;
    esac
done
