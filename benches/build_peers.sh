#!/bin/sh
# Builds the sandboxes of others that `make bench` compares with, and never fails. Afterwards DIRECTORY has bin/NAME,
# or NAME.missing with the reason, and NAME.log. What is there at the asked version is not built again.
#
#     build_peers.sh DIRECTORY SANDLOCK_CRATE@VERSION NAME...
#
# Those that are not among the NAMEs are left out.
set -eu

mkdir -p "$1/bin"
directory=$(cd "$1" && pwd)
# The versions of go-judge and of all that it needs, and their checksums. go-sandbox is a patch release later than
# go-judge names: not every module proxy has that one.
module=$(cd "$(dirname "$0")/go-judge" && pwd)
sandlock=$2
shift 2
asked=" $* "

# left_out NAME REASON
left_out() {
    echo "$2" >"$directory/$1.missing"
    echo "no $1: $2"
}
# build NAME VERSION COMMAND [ARGUMENT]...: builds outside the project, whose settings are not for others.
build() {
    name=$1 version=$2
    shift 2
    [ ! -x "$directory/bin/$name" ] || [ "$(cat "$directory/$name.version" 2>/dev/null)" != "$version" ] || return 0
    rm -f "$directory/$name.missing" "$directory/$name.version" "$directory/bin/$name"
    if (cd / && "$@") >"$directory/$name.log" 2>&1; then
        echo "$version" >"$directory/$name.version"
    else
        left_out "$name" "$version could not be fetched and built here"
    fi
}

# is_asked NAME
is_asked() {
    case $asked in *" $1 "*) return 0 ;; esac
    [ -x "$directory/bin/$1" ] || left_out "$1" "it is not among PEERS"
    return 1
}

if ! is_asked go-judge; then
    :
elif command -v go >/dev/null; then
    package=github.com/criyle/go-judge/cmd/go-judge
    version=$(sed -n 's|.*/criyle/go-judge \(v[^ ]*\).*|\1|p' "$module/go.mod")
    build go-judge "$package@$version" \
        env CGO_ENABLED=0 go build -C "$module" -mod=readonly -o "$directory/bin/go-judge" "$package"
else
    left_out go-judge "there is no Go toolchain"
fi

! is_asked sandlock || build sandlock "$sandlock" "${CARGO:-cargo}" install --locked --root "$directory" "$sandlock"

# Only as a package: its sources are in no registry of packages.
rm -f "$directory/nsjail.missing"
if ! command -v nsjail >/dev/null && is_asked nsjail; then
    if ! apt-cache show nsjail >/dev/null 2>&1; then
        left_out nsjail "it is not installed, and this system has no package of it"
    elif ! ${APT_GET:-apt-get} install -y --no-install-recommends nsjail >"$directory/nsjail.log" 2>&1; then
        left_out nsjail "its package could not be installed"
    fi
fi
