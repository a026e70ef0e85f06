#!/bin/sh
# Compiles into DIR the crates that a checker may use. They come as sources from
# the distribution; what cargo would find out about each, its features and what
# its build script says, stands here, so that no cargo is needed.
#   crates.sh DIR
set -eu

registry=/usr/share/cargo/registry
out=$1

# crate NAME KIND OPTIMISATION [OPTION...]
crate() {
    name=$1 kind=$2 level=$3
    shift 3
    # Debian's directories have the package's name, which may have a dash.
    for directory in "$registry/$name"-[0-9]* "$registry/$(echo "$name" | tr _ -)"-[0-9]*; do
        [ -d "$directory" ] && break
    done
    edition=$(sed -n 's/^edition = "\(.*\)"/\1/p' "$directory/Cargo.toml")
    # The name apart, rustc must tell them from those it has of its own.
    rustc --crate-name "$name" --crate-type "$kind" --edition "${edition:-2015}" --cap-lints allow \
        -C opt-level="$level" -C debuginfo=0 -C metadata=cofferdam \
        -L "dependency=$out" --out-dir "$out" "$@" "$directory/src/lib.rs"
}

uses() {
    for used; do
        printf -- '--extern %s=%s/lib%s.rlib ' "$used" "$out" "$used"
    done
}

mkdir -p "$out"
# What only the derive macros use goes away again.
work="$out/macros"
mkdir -p "$work"

# In a compiler's process, for every program that derives: the optimiser pays.
out=$work
crate unicode_ident lib 3
crate proc_macro2 lib 3 --cfg wrap_proc_macro --cfg 'feature="proc-macro"' $(uses unicode_ident)
crate quote lib 3 --cfg 'feature="proc-macro"' $(uses proc_macro2)
crate syn lib 3 --cfg 'feature="clone-impls"' --cfg 'feature="derive"' --cfg 'feature="parsing"' \
    --cfg 'feature="printing"' --cfg 'feature="proc-macro"' $(uses proc_macro2 quote unicode_ident)
crate serde_derive proc-macro 3 --cfg 'feature="default"' --extern proc_macro $(uses proc_macro2 quote syn)
mv "$work/libserde_derive.so" "$1/"
rm -r "$work"

# Linked into programs that live for milliseconds.
out=$1
crate libc lib 1 --cfg libc_const_extern_fn --cfg freebsd11 --cfg 'feature="std"' --cfg 'feature="extra_traits"'
crate memchr lib 1 --cfg 'feature="std"' --cfg 'feature="alloc"'
crate itoa lib 1
crate ryu lib 1
crate serde lib 1 --cfg 'feature="std"' --cfg 'feature="derive"' --cfg 'feature="serde_derive"' \
    --cfg 'feature="rc"' --extern "serde_derive=$out/libserde_derive.so"
crate serde_json lib 1 --cfg 'fast_arithmetic="64"' --cfg 'feature="std"' $(uses serde memchr itoa ryu)

# One of the workspace itself.
with=$(dirname "$0")/serde_with
rustc --crate-name serde_with_macros --crate-type proc-macro --edition 2021 -C opt-level=3 -C debuginfo=0 \
    --extern proc_macro --out-dir "$out" "$with/macros.rs"
rustc --crate-name serde_with --crate-type lib --edition 2021 -C opt-level=1 -C debuginfo=0 -L "dependency=$out" \
    --extern "serde_with_macros=$out/libserde_with_macros.so" $(uses serde) --out-dir "$out" "$with/lib.rs"
