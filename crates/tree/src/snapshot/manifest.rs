//! Computes the digest of a tree.

use nix::sys::stat::Mode;

use cofferdam_core::values::digest::Digest;

const EXECUTE: Mode = Mode::S_IXUSR.union(Mode::S_IXGRP).union(Mode::S_IXOTH);

/// Hashes a tree entry by entry. Every part of an entry has a fixed length or a length prefix, so
/// different trees have different encodings.
#[derive(Debug, Default)]
pub(super) struct Manifest(Digest);

impl Manifest {
    pub(super) fn directory(&mut self, mode: Mode, path: &[u8]) {
        self.entry(b'd', mode, path, b"");
    }

    /// `digest` is the digest of the contents.
    pub(super) fn file(&mut self, mode: Mode, path: &[u8], digest: &str) {
        self.entry(b'f', mode, path, digest.as_bytes());
    }

    pub(super) fn link(&mut self, path: &[u8], text: &[u8]) {
        self.entry(b'l', Mode::empty(), path, text);
    }

    /// Returns the digest, 64 hexadecimal digits.
    pub(super) fn finish(self) -> String {
        self.0.finish()
    }

    fn entry(&mut self, kind: u8, mode: Mode, path: &[u8], holds: &[u8]) {
        self.0.update(&[kind]);
        self.0.update(&(mode & EXECUTE).bits().to_be_bytes());
        for part in [path, holds] {
            self.0.update(&(part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_trees_have_different_digests() {
        let digest = |make: &dyn Fn(&mut Manifest)| {
            let mut manifest = Manifest::default();
            make(&mut manifest);
            manifest.finish()
        };
        let all = Mode::S_IRWXU;
        let digests = [
            digest(&|_| {}),
            digest(&|tree| tree.file(all, b"a", "x")),
            digest(&|tree| tree.file(Mode::S_IRUSR, b"a", "x")),
            digest(&|tree| tree.file(all, b"ax", "")),
            digest(&|tree| tree.link(b"a", b"x")),
            digest(&|tree| tree.directory(all, b"a")),
            digest(&|tree| {
                tree.link(b"a", b"x");
                tree.link(b"b", b"x");
            }),
        ];
        for (at, one) in digests.iter().enumerate() {
            assert!(digests.iter().skip(at + 1).all(|other| other != one), "{at}");
        }
        let same = digest(&|tree| tree.file(all | Mode::S_IWOTH, b"a", "x"));
        assert_eq!(same, digests[1], "write permissions are not covered");
    }
}
