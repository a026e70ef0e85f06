//! The program of a prepared sandbox, as it is sent when the sandbox is resumed.
//!
//! The plan of such a sandbox begins its data with an area of fixed size. The program's process reads
//! the whole area from one message. Every call that needs a part of it has that part's address.

use std::ffi::{CStr, CString};

use crate::init::wire::RELEASE_WORDS;
use crate::plan::encode::{Arg, DATA_ADDRESS};

/// Bytes of the area, and of the message: little enough for a socket to deliver it whole.
pub const AREA_BYTES: usize = 32 << 10;
/// The most places where the program may be.
const PATHS_MAX: usize = 12;
/// Bytes of each of them, with its NUL.
const PATH_BYTES_MAX: usize = 256;
/// Bytes of the working directory, with its NUL.
const WORKDIR_BYTES_MAX: usize = 1024;
/// The most arguments, and the most variables, with the NULL that ends them.
const POINTERS_MAX: usize = 256;
const WORD_BYTES: usize = size_of::<u64>();

// The parts of the area, by their offsets.
const LIMITS: usize = 0;
const WORKDIR: usize = LIMITS + RELEASE_WORDS * WORD_BYTES;
const PATHS: usize = WORKDIR + WORKDIR_BYTES_MAX;
const ARGV: usize = PATHS + PATHS_MAX * PATH_BYTES_MAX;
const ENV: usize = ARGV + POINTERS_MAX * WORD_BYTES;
const TEXTS: usize = ENV + POINTERS_MAX * WORD_BYTES;

/// The program of a prepared sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentProgram(Vec<u8>);

impl SentProgram {
    /// The program at the first of `paths` that can be executed. None if it does not fit: a sandbox
    /// has to be created for it.
    pub fn new(
        paths: &[CString],
        argv: &[CString],
        env: &[CString],
        workdir: &CStr,
    ) -> Option<Self> {
        let mut area = ProgramArea { bytes: vec![0; AREA_BYTES], texts: TEXTS };
        area.put(WORKDIR, workdir.to_bytes_with_nul(), PATHS)?;
        if paths.is_empty() || paths.len() > PATHS_MAX {
            return None;
        }
        for (index, path) in paths.iter().enumerate() {
            let at = PATHS + index * PATH_BYTES_MAX;
            area.put(at, path.to_bytes_with_nul(), at + PATH_BYTES_MAX)?;
        }
        area.put_all(ARGV, argv, ENV)?;
        area.put_all(ENV, env, TEXTS)?;
        Some(Self(area.bytes))
    }

    /// The message that resumes the program with these limits of CPU seconds.
    pub(crate) fn with_limits(mut self, words: [u64; RELEASE_WORDS]) -> Vec<u8> {
        for (to, from) in self.0.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())) {
            *to = from;
        }
        self.0
    }
}

/// The address of the area, and of the limits in it.
pub fn area() -> Arg {
    at(LIMITS)
}

/// The address of the working directory.
pub fn workdir() -> Arg {
    at(WORKDIR)
}

/// The addresses where the program may be. Those that are not needed hold an empty path, at which
/// nothing is.
pub fn paths() -> impl Iterator<Item = Arg> {
    (0..PATHS_MAX).map(|index| at(PATHS + index * PATH_BYTES_MAX))
}

/// The addresses of the arguments and of the variables.
pub fn pointers() -> [Arg; 2] {
    [ARGV, ENV].map(at)
}

fn at(offset: usize) -> Arg {
    Arg::Value(address(offset))
}

fn address(offset: usize) -> u64 {
    DATA_ADDRESS + offset as u64
}

/// An area while it is filled.
struct ProgramArea {
    bytes: Vec<u8>,
    /// Where the next text goes.
    texts: usize,
}

impl ProgramArea {
    /// Puts `bytes` at an offset, if they end before another.
    fn put(&mut self, at: usize, bytes: &[u8], before: usize) -> Option<()> {
        let end = at.checked_add(bytes.len()).filter(|end| *end <= before)?;
        self.bytes.get_mut(at..end)?.copy_from_slice(bytes);
        Some(())
    }

    /// Puts texts, and at an offset their addresses and a NULL, if these end before another.
    fn put_all(&mut self, at: usize, texts: &[CString], before: usize) -> Option<()> {
        for (index, text) in texts.iter().enumerate() {
            let to = self.texts;
            self.put(to, text.as_bytes_with_nul(), AREA_BYTES)?;
            self.texts += text.as_bytes_with_nul().len();
            // The NULL after the last is there already.
            self.put(at + index * WORD_BYTES, &address(to).to_ne_bytes(), before - WORD_BYTES)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c_strings(texts: &[&str]) -> Vec<CString> {
        texts.iter().map(|text| CString::new(*text).unwrap()).collect()
    }

    fn text_at(area: &[u8], offset: usize) -> &str {
        CStr::from_bytes_until_nul(&area[offset..]).unwrap().to_str().unwrap()
    }

    /// The texts that the array at `offset` points to.
    fn array_at(area: &[u8], offset: usize) -> Vec<&str> {
        let words = area[offset..].chunks_exact(WORD_BYTES);
        let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        let offsets = words.take_while(|word| *word != 0).map(|word| word - address(0));
        offsets.map(|offset| text_at(area, usize::try_from(offset).unwrap())).collect()
    }

    #[test]
    fn the_message_holds_the_program_at_the_addresses_that_the_calls_have() {
        let (argv, env) = (c_strings(&["a", "", "b c"]), c_strings(&["PATH=/x:/y", "K=1"]));
        let paths = c_strings(&["/x/a", "/y/a"]);
        let program = SentProgram::new(&paths, &argv, &env, c"/workspace").unwrap();
        let area = program.with_limits([7, 8]);
        assert_eq!(area.len(), AREA_BYTES);
        assert_eq!(
            (&area[..8], &area[8..16]),
            (&7_u64.to_ne_bytes()[..], &8_u64.to_ne_bytes()[..])
        );
        assert_eq!(text_at(&area, WORKDIR), "/workspace");
        let found: Vec<&str> =
            (0..PATHS_MAX).map(|index| text_at(&area, PATHS + index * PATH_BYTES_MAX)).collect();
        assert_eq!(found[..3], ["/x/a", "/y/a", ""]);
        assert!(found[2..].iter().all(|path| path.is_empty()));
        assert_eq!(array_at(&area, ARGV), ["a", "", "b c"]);
        assert_eq!(array_at(&area, ENV), ["PATH=/x:/y", "K=1"]);
    }

    #[test]
    fn a_program_that_does_not_fit_is_refused_whole() {
        let fits = |paths: &[CString], argv: &[CString], env: &[CString], workdir: &str| {
            let workdir = CString::new(workdir).unwrap();
            SentProgram::new(paths, argv, env, &workdir).is_some()
        };
        let (one, none) = (c_strings(&["/a"]), c_strings(&[]));
        let many = |count| vec![CString::new("x").unwrap(); count];
        let long = |bytes: usize| c_strings(&[&"x".repeat(bytes)]);
        assert!(fits(&one, &one, &none, "/workspace"));
        assert!(!fits(&none, &one, &none, "/workspace"), "no path");
        let room = AREA_BYTES - TEXTS - 1;
        for (name, max, fits) in [
            ("paths", PATHS_MAX, &(|n| fits(&many(n), &one, &none, "/")) as &dyn Fn(usize) -> bool),
            ("path", PATH_BYTES_MAX - 1, &|n| fits(&long(n), &one, &none, "/")),
            ("arguments", POINTERS_MAX - 1, &|n| fits(&one, &many(n), &none, "/")),
            ("variables", POINTERS_MAX - 1, &|n| fits(&one, &none, &many(n), "/")),
            ("texts", room, &|n| fits(&one, &long(n), &none, "/")),
            ("workdir", WORKDIR_BYTES_MAX - 1, &|n| fits(&one, &one, &none, &"w".repeat(n))),
        ] {
            assert_eq!((fits(max), fits(max + 1)), (true, false), "{name}");
        }
    }
}
