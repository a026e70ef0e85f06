#!/bin/bash
# test_toolchains.sh SLUG: tests the recipe of `make toolchains` on a copy of langs/ and on the
# TOOLCHAINS_DIR in which SLUG and others were built before. Nothing is built twice, a change rebuilds
# only what depends on it, and an error names its cause.
set -euo pipefail
slug=$1
: "${TOOLCHAINS_DIR:?is not set: the folder of the toolchains}"
copy=$(mktemp --directory)
trap 'rm -rf "$copy"' EXIT
cp -r "$(dirname "$0")/../langs" "$copy"
build() { "$copy/langs/toolchains/build" "$@" 2>&1; }
# expect WORDS TEXT and absent WORDS TEXT exit unless WORDS are in TEXT, or are not.
expect() { [[ $2 == *"$1"* ]] || { echo "no '$1' in: $2" >&2; exit 1; }; }
absent() { [[ $2 != *"$1"* ]] || { echo "'$1' in: $2" >&2; exit 1; }; }
built() { (cd "$TOOLCHAINS_DIR/stamps" && echo *.installed) | sed 's/\.installed//g'; }
mapfile -t all < <(built | tr ' ' '\n')

SECONDS=0
text=$(build "${all[@]}")
absent "installed in" "$text"
absent "warm in" "$text"
[ "$SECONDS" -le 10 ]

echo '# A comment is a change too.' >>"$copy/langs/toolchains/$slug/packages"
text=$(build "${all[@]}")
expect "$slug: installed in" "$text"
[ "$(grep -c 'installed in' <<<"$text")" = 1 ]
absent "base: unpacking" "$text"

# A change in the workspace only: nothing is installed.
echo '# changed' >>"$copy/langs/$slug/Makefile"
text=$(build "$slug")
expect "$slug: warm in" "$text"
absent "$slug: installed in" "$text"

echo 'exit 3' >"$copy/langs/toolchains/$slug/install"
! text=$(build "$slug")
expect "$slug: installing failed" "$text"

expect "dart: left out: " "$(build "$slug" dart || true)"
! text=$(build "$slug" cobol)
expect "cobol: no such language" "$text"

# Two builds at once: the second waits for the first, and only one installs what failed before.
rm "$copy/langs/toolchains/$slug/install"
build "$slug" >"$copy/first" &
text=$(build "$slug")
wait $!
text+=$'\n'$(<"$copy/first")
[ "$(grep -c "ready: $slug" <<<"$text")" = 2 ]
[ "$(grep -c 'installed in' <<<"$text")" = 1 ]
echo "toolchains: every test of the recipe passed"
