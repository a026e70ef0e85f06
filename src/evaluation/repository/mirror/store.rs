//! The directories of mirrors.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::evaluation::cache::touch;
use crate::evaluation::repository::revision::RefList;

/// The link to the newest generation.
const CURRENT: &str = "current";
/// What a generation holds, for a check that it is whole.
const MANIFEST: &str = "manifest.json";
/// The branches and tags, as the server listed them last.
const LISTED: &str = "listed-refs";
const PACKS: &str = "objects/pack";
/// The most packs of one mirror; with more it is fetched anew.
pub const PACKS_MAX: usize = 64;
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";

/// The mirrors of one cache.
#[derive(Debug)]
pub struct MirrorStore {
    directory: PathBuf,
    /// Those in use, by their paths.
    live: Mutex<BTreeMap<PathBuf, Weak<Mirror>>>,
}

/// One generation of a mirror, which does not change.
#[derive(Debug)]
pub struct Mirror {
    path: PathBuf,
    manifest: MirrorManifest,
    /// Whether a newer one replaced it: it goes with its last user.
    is_retired: AtomicBool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MirrorManifest {
    /// Bytes of each file of packs.
    packs: BTreeMap<String, u64>,
    /// The commits that were fetched with all their history.
    commits: Vec<String>,
}

impl Mirror {
    /// Its directory, a bare repository.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The branches and tags that the server had at the last fetch.
    pub fn listed(&self) -> RefList {
        RefList::parse(&fs::read_to_string(self.path.join(LISTED)).unwrap_or_default())
    }

    /// Whether `commit` was fetched itself.
    pub fn has_fetched(&self, commit: &str) -> bool {
        self.manifest.commits.iter().any(|fetched| fetched == commit)
    }

    /// Bytes of its packs.
    pub fn bytes(&self) -> u64 {
        self.manifest.packs.values().sum()
    }

    /// How many files its packs have.
    pub fn pack_files(&self) -> usize {
        self.manifest.packs.len()
    }

    /// Whether every file has its length.
    fn is_whole(&self) -> bool {
        let length = |name: &String| fs::metadata(self.path.join(PACKS).join(name));
        let is_right =
            |(name, bytes): (&String, &u64)| length(name).is_ok_and(|found| found.len() == *bytes);
        !self.manifest.packs.is_empty() && self.manifest.packs.iter().all(is_right)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if self.is_retired.load(Ordering::Acquire)
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            log::warn!("{}: {error}", self.path.display());
        }
    }
}

impl MirrorStore {
    /// Mirrors in `directory`, which is made with the first.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, live: Mutex::default() }
    }

    /// The directory with an entry for each mirror.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The newest whole generation of the mirror `key`, if there is one.
    pub fn find(&self, key: &str) -> Option<Arc<Mirror>> {
        let entry = self.directory.join(key);
        let name = fs::read_link(entry.join(CURRENT)).ok()?;
        let path = entry.join(name.file_name()?);
        let manifest = fs::read(path.join(MANIFEST)).ok()?;
        let manifest: MirrorManifest = serde_json::from_slice(&manifest).ok()?;
        let mirror = self.share(Mirror { path, manifest, is_retired: AtomicBool::new(false) });
        if !mirror.is_whole() {
            log::warn!("{}: broken, made anew", mirror.path.display());
            return None;
        }
        touch(&entry);
        Some(mirror)
    }

    /// Whether someone uses a generation of the entry at `path`.
    pub fn is_in_use(&self, path: &Path) -> bool {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.iter().any(|(used, mirror)| used.starts_with(path) && mirror.strong_count() > 0)
    }

    /// Publishes a generation of the mirror `key`: the packs of `before`, those in the directory `packs`
    /// of a sandbox's files, and `commit`.
    ///
    /// # Errors
    /// A file cannot be read or written. Nothing has changed then.
    pub fn publish(
        &self,
        key: &str,
        before: Option<&Arc<Mirror>>,
        packs: BorrowedFd<'_>,
        (commit, listed): (&str, &str),
    ) -> io::Result<Arc<Mirror>> {
        let entry = self.directory.join(key);
        DirBuilder::new().recursive(true).mode(0o700).create(&entry)?;
        let name = Uuid::new_v4().to_string();
        let path = entry.join(&name);
        let made = fill(&path, before, packs, (commit, listed));
        let manifest = made.inspect_err(|_| {
            let _ = fs::remove_dir_all(&path);
        })?;
        let link = entry.join(format!("{name}.link"));
        symlink(&name, &link)?;
        fs::rename(&link, entry.join(CURRENT))?;
        File::open(&entry)?.sync_all()?;
        let mirror = self.share(Mirror { path, manifest, is_retired: AtomicBool::new(false) });
        self.retire_others(&entry, &mirror);
        Ok(mirror)
    }

    /// Removes the mirror `key`, which is broken.
    pub fn discard(&self, key: &str) {
        let entry = self.directory.join(key);
        let removed = fs::remove_file(entry.join(CURRENT));
        if removed.is_ok() {
            self.retire(&entry, None);
        }
    }

    /// The same value for the same generation.
    fn share(&self, mirror: Mirror) -> Arc<Mirror> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, mirror| mirror.strong_count() > 0);
        if let Some(found) = live.get(&mirror.path).and_then(Weak::upgrade) {
            return found;
        }
        let mirror = Arc::new(mirror);
        live.insert(mirror.path.clone(), Arc::downgrade(&mirror));
        mirror
    }

    fn retire_others(&self, entry: &Path, newest: &Arc<Mirror>) {
        self.retire(entry, Some(newest.path()));
    }

    /// Removes the generations of an entry but `newest`, those in use once they are not.
    fn retire(&self, entry: &Path, newest: Option<&Path>) {
        for found in fs::read_dir(entry).into_iter().flatten().flatten() {
            let path = found.path();
            let is_generation = found.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_generation || newest == Some(path.as_path()) {
                continue;
            }
            let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            let used = live.get(&path).and_then(Weak::upgrade);
            drop(live);
            match used {
                Some(mirror) => mirror.is_retired.store(true, Ordering::Release),
                None => {
                    let _ = fs::remove_dir_all(&path);
                }
            }
        }
    }
}

/// Writes a generation to the new directory `path`.
fn fill(
    path: &Path,
    before: Option<&Arc<Mirror>>,
    packs: BorrowedFd<'_>,
    (commit, listed): (&str, &str),
) -> io::Result<MirrorManifest> {
    let target = path.join(PACKS);
    let shown = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    for directory in [PACKS, "objects/info", "refs"] {
        DirBuilder::new().recursive(true).mode(0o755).create(path.join(directory))?;
    }
    for directory in ["", "objects", PACKS, "objects/info", "refs"] {
        shown(&path.join(directory))?;
    }
    let mut manifest = MirrorManifest::default();
    if let Some(before) = before {
        manifest = before.manifest.clone();
        for name in manifest.packs.keys() {
            fs::hard_link(before.path.join(PACKS).join(name), target.join(name))?;
        }
    }
    copy_packs(packs, &target, &mut manifest.packs)?;
    if !manifest.commits.iter().any(|known| known == commit) {
        manifest.commits.push(commit.to_owned());
    }
    manifest.commits.sort();
    let refs: String =
        manifest.commits.iter().map(|commit| format!("{commit} refs/commits/{commit}\n")).collect();
    let refs = format!("# pack-refs with: peeled fully-peeled sorted \n{refs}");
    let text = serde_json::to_string(&manifest).map_err(io::Error::other)?;
    for (name, contents) in [
        ("HEAD", "ref: refs/heads/none\n"),
        ("config", CONFIG),
        ("packed-refs", &refs),
        (LISTED, listed),
        // Last: what lacks it is not whole.
        (MANIFEST, &text),
    ] {
        let mut file = File::create(path.join(name))?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
    }
    Ok(manifest)
}

/// Copies the packs of the directory `from`, in which a sandbox has written, to `to`.
fn copy_packs(
    from: BorrowedFd<'_>,
    to: &Path,
    packs: &mut BTreeMap<String, u64>,
) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut directory = Dir::openat(from, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in directory.iter() {
        let name = entry?.file_name().to_str().unwrap_or_default().to_owned();
        if is_pack_file(&name) {
            names.push(name);
        }
        if names.len() + packs.len() > 2 * PACKS_MAX {
            return Err(io::Error::other("too many packs"));
        }
    }
    for name in names.into_iter().filter(|name| !name.ends_with(".rev")) {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let source = openat(from, name.as_str(), flags, Mode::empty())?;
        let mode = SFlag::from_bits_truncate(fstat(source.as_fd())?.st_mode);
        if !mode.contains(SFlag::S_IFREG) || mode.contains(SFlag::S_IFLNK) {
            return Err(io::Error::other("a pack is no file"));
        }
        if packs.contains_key(&name) {
            continue;
        }
        let mut target = File::create_new(to.join(&name))?;
        target.set_permissions(fs::Permissions::from_mode(0o444))?;
        let bytes = io::copy(&mut File::from(source), &mut target)?;
        target.sync_all()?;
        packs.insert(name, bytes);
    }
    Ok(())
}

/// Whether git gives such a name to a file of a pack.
fn is_pack_file(name: &str) -> bool {
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let digits = stem.strip_prefix("pack-").unwrap_or_default();
    matches!(extension, "pack" | "idx" | "rev")
        && digits.len() == 40
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn packs(names: &[&str]) -> (tempfile::TempDir, File) {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(directory.path().join(name), *name).unwrap();
        }
        let open = File::open(directory.path()).unwrap();
        (directory, open)
    }

    fn pack(digits: &str) -> [String; 2] {
        [format!("pack-{digits}.pack"), format!("pack-{digits}.idx")]
    }

    #[test]
    fn a_new_generation_has_the_packs_of_the_one_before_which_goes_with_its_last_user() {
        let cache = tempfile::tempdir().unwrap();
        let store = MirrorStore::new(cache.path().join("mirrors"));
        assert!(store.find("k").is_none());
        let [one, two] = [A, B].map(pack);
        let (_kept, first) = packs(&[&one[0], &one[1], "pack-x.pack", "tmp_pack"]);
        let listed = format!("{A}\trefs/heads/main\n");
        let old = store.publish("k", None, first.as_fd(), (A, &listed)).unwrap();
        let (_kept, second) = packs(&[&two[0], &two[1]]);
        let new = store.publish("k", Some(&old), second.as_fd(), (B, "")).unwrap();
        assert_eq!((old.pack_files(), new.pack_files()), (2, 4));
        assert!(new.has_fetched(A) && new.has_fetched(B) && !old.has_fetched(B));
        assert_eq!(old.listed().find("main"), Some(A));
        let place = old.path().to_owned();
        assert!(place.exists() && store.is_in_use(&store.directory().join("k")));
        drop(old);
        assert!(!place.exists());
        assert!(Arc::ptr_eq(&store.find("k").unwrap(), &new));
    }

    #[test]
    fn a_broken_mirror_is_as_good_as_none() {
        let cache = tempfile::tempdir().unwrap();
        let store = MirrorStore::new(cache.path().to_owned());
        let [one, _] = [A, B].map(pack);
        let (_kept, first) = packs(&[&one[0], &one[1]]);
        let mirror = store.publish("k", None, first.as_fd(), (A, "")).unwrap();
        fs::remove_file(mirror.path().join(PACKS).join(&one[0])).unwrap();
        assert!(store.find("k").is_none());
        store.discard("k");
        assert!(store.find("k").is_none());
        drop(mirror);
        assert_eq!(fs::read_dir(cache.path().join("k")).unwrap().count(), 0);
    }

    #[test]
    fn a_link_that_a_sandbox_left_in_place_of_a_pack_is_refused() {
        let cache = tempfile::tempdir().unwrap();
        let store = MirrorStore::new(cache.path().to_owned());
        let [[name, _], _] = [A, B].map(pack);
        let (directory, open) = packs(&[]);
        symlink("/etc/hostname", directory.path().join(name)).unwrap();
        assert!(store.publish("k", None, open.as_fd(), (A, "")).is_err());
        assert!(store.find("k").is_none());
    }
}
