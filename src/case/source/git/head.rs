//! HEAD of a local repository, read without git: what a directory names as its repository runs nothing here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::case::source::error::SourceFault;
use crate::evaluation::repository::Revision;

/// The longest HEAD or ref that is read, bytes.
const REF_BYTES_MAX: u64 = 4096;
/// The longest list of packed refs that is read, bytes.
const PACKED_REFS_BYTES_MAX: u64 = 64 << 20;

/// A local repository and its HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalHead {
    /// Its git directory, without links.
    pub git_directory: PathBuf,
    /// The full hash of the commit.
    pub commit: String,
}

impl LocalHead {
    /// Reads that of the repository whose work tree, or git directory, is `path`.
    ///
    /// # Errors
    /// There is no repository, or it has no commit.
    pub fn of(path: &Path) -> Result<Self, SourceFault> {
        Self::read(path).map_err(|reason| SourceFault::NoRepository {
            path: path.display().to_string(),
            reason: reason.to_owned(),
        })
    }

    fn read(path: &Path) -> Result<Self, &'static str> {
        let git_directory = git_directory(path)?;
        let head = read_text(&git_directory.join("HEAD"), REF_BYTES_MAX);
        let head = head.map_err(|_| "its HEAD cannot be read")?;
        let commit = match head.trim_end().strip_prefix("ref: ") {
            None => full_hash(&head).ok_or("its HEAD is no commit")?,
            Some(name) => {
                // A name that git accepts has no `..`.
                Revision::parse(name).ok_or("its HEAD names no branch")?;
                branch_head(&git_directory, name).ok_or("its branch has no commit")?
            }
        };
        Ok(Self { git_directory, commit })
    }
}

fn git_directory(path: &Path) -> Result<PathBuf, &'static str> {
    let path = fs::canonicalize(path).map_err(|_| "there is no such directory")?;
    let below = path.join(".git");
    let found = match fs::symlink_metadata(&below) {
        Ok(found) if found.is_dir() => below,
        Ok(_) => return Err("its .git is a file or a link, which leads elsewhere"),
        Err(_) => path,
    };
    match found.join("objects").is_dir() {
        true => Ok(found),
        false => Err("it is no git repository"),
    }
}

/// The commit of the branch `name`: in a file of its own, or else in the packed list.
fn branch_head(git_directory: &Path, name: &str) -> Option<String> {
    let own = read_text(&git_directory.join(name), REF_BYTES_MAX).ok();
    own.and_then(|text| full_hash(&text)).or_else(|| {
        let packed = read_text(&git_directory.join("packed-refs"), PACKED_REFS_BYTES_MAX).ok()?;
        packed_hash(&packed, name)
    })
}

/// The commit of the ref `name` in a list of packed refs.
fn packed_hash(packed: &str, name: &str) -> Option<String> {
    let line = packed.lines().filter_map(|line| line.split_once(' '));
    let mut of_name = line.filter(|(_, other)| *other == name);
    of_name.find_map(|(hash, _)| full_hash(hash))
}

fn full_hash(text: &str) -> Option<String> {
    match Revision::parse(text.trim_end()) {
        Some(Revision::Full(hash)) => Some(hash),
        _ => None,
    }
}

/// Reads a regular file that is no link.
pub(super) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > bytes_max {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn head_is_a_commit_or_that_of_its_branch() {
        let packed =
            format!("# pack-refs with: peeled \n{B} refs/heads/m2\n{B} refs/heads/m\n^{A}\n");
        for (head, own, packed, wanted) in [
            (A, None, "", Ok(A)),
            ("ref: refs/heads/m\n", Some(A), packed.as_str(), Ok(A)),
            ("ref: refs/heads/m\n", None, &packed, Ok(B)),
            ("ref: refs/heads/m\n", None, "", Err("its branch has no commit")),
            ("ref: refs/heads/m\n", Some("ref: x"), "", Err("its branch has no commit")),
            ("ref: ../../m\n", None, "", Err("its HEAD names no branch")),
            ("ref: /etc/m\n", None, "", Err("its HEAD names no branch")),
            ("root:x:0\n", None, "", Err("its HEAD is no commit")),
        ] {
            let place = tempfile::tempdir().unwrap();
            let git = place.path().join(".git");
            fs::create_dir_all(git.join("objects")).unwrap();
            fs::create_dir_all(git.join("refs/heads")).unwrap();
            fs::write(git.join("HEAD"), head).unwrap();
            fs::write(git.join("packed-refs"), packed).unwrap();
            if let Some(own) = own {
                fs::write(git.join("refs/heads/m"), own).unwrap();
            }
            let found = LocalHead::read(place.path()).map(|head| head.commit);
            assert_eq!(found.as_deref().map_err(|words| *words), wanted, "{head}");
        }
    }

    #[test]
    fn a_git_directory_that_leads_elsewhere_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["real/objects", "linked", "pointed", "none"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("real/HEAD"), A).unwrap();
        symlink(at("real"), at("linked/.git")).unwrap();
        fs::write(at("pointed/.git"), "gitdir: ../real").unwrap();
        assert_eq!(LocalHead::read(&at("real")).unwrap().commit, A);
        for (name, words) in [
            ("linked", "its .git is a file or a link, which leads elsewhere"),
            ("pointed", "its .git is a file or a link, which leads elsewhere"),
            ("none", "it is no git repository"),
            ("absent", "there is no such directory"),
        ] {
            assert_eq!(LocalHead::read(&at(name)), Err(words), "{name}");
        }
    }
}
