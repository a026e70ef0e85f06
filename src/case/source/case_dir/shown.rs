//! Which entries of a Case's directory are shown (pure).

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::listing::{CaseListing, FileIdentity, ListedKind};
use crate::case::file::{Case, CaseOracle, GraderKind, HarnessKind, InjectedFile};
use cofferdam_core::weakened::{self, Wall};

/// How many links are followed for one path, as the kernel has it.
const LINKS_MAX: usize = 40;

/// The paths that nothing but graders, the oracle and harnesses may see: all that they name, and the case file, whose
/// name is `case_file`. They are below the directory of the Case.
pub fn hidden_names(case: &Case, case_file: &Path) -> BTreeSet<PathBuf> {
    if weakened::lacks(Wall::Hidden) {
        return BTreeSet::new();
    }
    let mut hidden = BTreeSet::from([case_file.to_owned()]);
    // With fixtures the files of graders are in another repository. A file of the same name is not shown either.
    for grader in &case.graders {
        let (inject, directory): (&[InjectedFile], _) = match &grader.kind {
            Some(GraderKind::Tests { counts, .. } | GraderKind::Pytest { counts }) => {
                (&counts.inject, None)
            }
            Some(GraderKind::Swebench { inject, .. }) => (inject, None),
            Some(GraderKind::Files { expect_dir, .. }) => (&[], expect_dir.clone()),
            _ => (&[], None),
        };
        hidden.extend(inject.iter().map(|file| file.source.clone()));
        hidden.extend(directory);
    }
    for harness in case.harnesses.values() {
        if let Some(HarnessKind::Replay { patch }) = &harness.kind {
            hidden.insert(patch.clone());
        }
    }
    if let Some(CaseOracle::Patch(patch)) = &case.oracle {
        hidden.insert(patch.clone());
    }
    hidden
}

/// The entries of `listing` that are shown, in its order, without those of the names in `hidden`. A hidden file is hidden under
/// each of its names: behind a link, and where it has several hard links. Links that lead out are not shown.
pub fn shown_paths<'l>(listing: &'l CaseListing, hidden: &BTreeSet<PathBuf>) -> Vec<&'l Path> {
    let hidden = all_names(listing, hidden);
    let entries = listing.entries();
    let identities: BTreeSet<FileIdentity> = entries
        .filter(|(path, _)| is_below(&hidden, path))
        .filter_map(|(_, entry)| match &entry.kind {
            ListedKind::File { .. } => Some(entry.identity),
            ListedKind::Directory | ListedKind::Link { .. } => None,
        })
        .collect();
    let is_shown = |path: &Path, identity: FileIdentity, kind: &ListedKind| {
        !is_below(&hidden, path)
            && match kind {
                ListedKind::Directory => true,
                ListedKind::File { .. } => !identities.contains(&identity),
                ListedKind::Link { target } => stays_inside(path, target),
            }
    };
    let entries = listing.entries();
    let shown = entries.filter(|(path, entry)| is_shown(path, entry.identity, &entry.kind));
    shown.map(|(path, _)| path).collect()
}

/// The hidden names, with those that they are behind links, and what links in hidden directories lead to.
fn all_names(listing: &CaseListing, named: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut pending: Vec<PathBuf> = named.iter().cloned().collect();
    let mut hidden = BTreeSet::new();
    while let Some(path) = pending.pop() {
        if !hidden.insert(path.clone()) {
            continue;
        }
        pending.extend(real_path(listing, &path));
        for (below, entry) in listing.entries().filter(|(below, _)| below.starts_with(&path)) {
            if matches!(entry.kind, ListedKind::Link { .. }) {
                pending.extend(real_path(listing, below));
            }
        }
    }
    hidden
}

/// `path` with every link followed. `None` if it leads out, or in a circle.
fn real_path(listing: &CaseListing, path: &Path) -> Option<PathBuf> {
    let mut left: Vec<PathBuf> = parts(path)?;
    let (mut reached, mut links) = (PathBuf::new(), 0);
    while let Some(part) = left.pop() {
        if part.as_os_str() == ".." {
            if !reached.pop() {
                return None;
            }
            continue;
        }
        let next = reached.join(&part);
        match listing.get(&next).map(|entry| &entry.kind) {
            Some(ListedKind::Link { target }) => {
                links += 1;
                left.extend(parts(target)?);
                if links > LINKS_MAX {
                    return None;
                }
            }
            _ => reached = next,
        }
    }
    Some(reached)
}

/// The names of a relative path, the first one last.
fn parts(path: &Path) -> Option<Vec<PathBuf>> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(PathBuf::from(name)),
            Component::ParentDir => names.push(PathBuf::from("..")),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    names.reverse();
    Some(names)
}

/// Whether the link at `path` with the text `target` cannot lead out of the directory, whatever is in it: its text is relative,
/// and goes up only at its beginning, and not too far.
fn stays_inside(path: &Path, target: &Path) -> bool {
    let depth = path.components().count().saturating_sub(1);
    let Some(mut names) = parts(target) else { return false };
    names.reverse();
    let up = names.iter().take_while(|name| name.as_os_str() == "..").count();
    up <= depth && names.iter().skip(up).all(|name| name.as_os_str() != "..")
}

fn is_below(names: &BTreeSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().any(|above| names.contains(above))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::file::load_case;
    use crate::case::source::case_dir::listing::ListedEntry;

    /// A listing of texts: `a/` is a directory, `a -> b` a link, `a = 5` a file with the inode 5, `a` one with its own.
    fn listing(texts: &[&str]) -> CaseListing {
        let entry = |(index, text): (usize, &&str)| {
            let own = FileIdentity { device: 1, inode: 1000 + index as u64 };
            let (path, identity, kind) = if let Some((path, target)) = text.split_once(" -> ") {
                (path, own, ListedKind::Link { target: target.into() })
            } else if let Some((path, inode)) = text.split_once(" = ") {
                let identity = FileIdentity { device: 1, inode: inode.parse().unwrap() };
                (path, identity, ListedKind::File { is_executable: false })
            } else if let Some(path) = text.strip_suffix('/') {
                (path, own, ListedKind::Directory)
            } else {
                (*text, own, ListedKind::File { is_executable: false })
            };
            (PathBuf::from(path), ListedEntry { identity, kind })
        };
        CaseListing::of(texts.iter().enumerate().map(entry))
    }

    #[test]
    fn a_hidden_file_is_hidden_under_each_of_its_names() {
        let cases: [(&[&str], &[&str], &[&str]); 12] = [
            (&["case.yaml", "a"], &["case.yaml"], &["a"]),
            (&["t/", "t/h.py", "t/c.py"], &["t/h.py"], &["t", "t/c.py"]),
            (&["t/", "t/h.py", "t/d/", "t/d/x", "tt"], &["t"], &["tt"]),
            // A name that begins alike.
            (&["h", "h.txt"], &["h"], &["h.txt"]),
            // A link to a hidden file dangles.
            (&["h", "l -> h"], &["h"], &["l"]),
            // The hidden name is a link, or behind one.
            (&["h -> real", "real", "a"], &["h"], &["a"]),
            (&["d -> e", "e/", "e/h", "e/a"], &["d/h"], &["d", "e", "e/a"]),
            (
                &["d/", "d/h -> ../e/f", "e -> g", "g/", "g/f", "g/a"],
                &["d/h"],
                &["d", "e", "g", "g/a"],
            ),
            // What links in a hidden directory lead to.
            (&["x/", "x/l -> ../y", "y", "z"], &["x"], &["z"]),
            // Two hard links to one hidden file; another file of the same inode number is another entry.
            (&["h = 5", "alias = 5", "b = 6", "x/", "x/alias = 5"], &["h"], &["b", "x"]),
            (&["x/", "x/h = 5", "alias = 5", "b = 6"], &["x"], &["b"]),
            // Circles of links end.
            (&["h -> l", "l -> h", "a"], &["h"], &["l", "a"]),
        ];
        for (texts, hidden, shown) in cases {
            let listing = listing(texts);
            let hidden = hidden.iter().map(PathBuf::from).collect();
            let found = shown_paths(&listing, &hidden);
            let mut wanted: Vec<&Path> = shown.iter().map(Path::new).collect();
            wanted.sort();
            assert_eq!(found, wanted, "{texts:?}");
        }
    }

    #[test]
    fn a_link_that_may_lead_out_is_not_shown() {
        for (link, is_shown) in [
            ("l -> a", true),
            ("l -> ./a/b", true),
            ("d/l -> ../a", true),
            ("d/e/l -> ../../a", true),
            ("l -> ..", false),
            ("l -> ../a", false),
            ("d/l -> ../../a", false),
            ("d/l -> a/../../..", false),
            ("l -> a/../b", false),
            ("l -> /etc/passwd", false),
            ("l -> /", false),
        ] {
            let listing = listing(&["d/", "d/e/", "a", link]);
            let name = Path::new(link.split_once(' ').unwrap().0);
            let found = shown_paths(&listing, &BTreeSet::new());
            assert_eq!(found.contains(&name), is_shown, "{link}");
        }
    }

    #[test]
    fn all_that_graders_oracle_and_harnesses_name_is_hidden() {
        let place = tempfile::tempdir().unwrap();
        for name in ["i1", "i2", "i3/f", "s", "e/f", "o", "r", "req.txt", "doc"] {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let yaml = "id: a\ntask: {prompt: p, instruction_files: [doc]}\nmatrix: {harnesses: [nop], models: [m]}\n\
            environment: {requirement_files: [req.txt]}\n\
            harnesses: {r: {kind: replay, patch: ./r}, c: {kind: command, argv: [x]}}\n\
            oracle: {patch: o}\ngraders:\n\
            - {type: tests, cmd: c, inject: [i1, {src: i2, dest: d}]}\n\
            - {type: pytest, inject: [i3]}\n\
            - {type: swebench, fail_to_pass: [], inject: [s]}\n\
            - {type: files, expect_dir: e}\n- {type: implemented}\n- {type: command, cmd: i9}\n";
        std::fs::write(place.path().join("one.yaml"), yaml).unwrap();
        let case = load_case(&place.path().join("one.yaml")).unwrap().case;
        let hidden = hidden_names(&case, Path::new("one.yaml"));
        let wanted = ["one.yaml", "i1", "i2", "i3", "s", "e", "o", "r"];
        assert_eq!(hidden, wanted.iter().map(PathBuf::from).collect());
    }
}
