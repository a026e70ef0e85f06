//! Hidden files that are put into a Cell before grading. They replace whatever stands at their destinations or above.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::hidden::{HiddenFiles, hidden};
use crate::case::cell::{CellExecutor, ExecCode, ExecError};
use crate::case::file::InjectedFile;
use crate::case::grade::grader::GradeError;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_tree::files::EntryType;

/// The most files of one grader.
const FILES_MAX: usize = 10_000;

/// A file that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InjectedWrite {
    /// In the directory of hidden files.
    source: PathBuf,
    /// In the sandbox.
    destination: String,
}

/// Puts `files` into the sandbox of `cell`. A directory is put with all of its files, and nothing of one that it replaces
/// remains. A later file replaces an earlier one.
///
/// # Errors
/// A hidden file cannot be read, two destinations exclude each other, or the executor failed.
pub fn inject_files(
    cell: &dyn CellExecutor,
    directory: &Path,
    files: &[InjectedFile],
) -> Result<(), GradeError> {
    if files.is_empty() {
        return Ok(());
    }
    let sources = HiddenFiles::open(directory)?;
    let mut writes = planned_writes(&sources, files)?;
    check_destinations(&writes)?;
    let tops: Vec<String> =
        files.iter().map(|file| text(&file.destination)).collect::<Result<_, _>>()?;
    let in_the_way = planned_removals(&tops, &entries_above(cell, &tops)?);
    if weakened::lacks(Wall::Replaced) {
        writes.retain(|write| !in_the_way.contains(&write.destination));
    } else {
        in_the_way.iter().try_for_each(|path| cell.remove(path))?;
    }
    for InjectedWrite { source, destination } in &writes {
        let file = sources.read(source)?;
        cell.put(destination, &file.content, file.mode)?;
    }
    Ok(())
}

/// The files to write, those of directories one by one.
fn planned_writes(
    sources: &HiddenFiles,
    files: &[InjectedFile],
) -> Result<Vec<InjectedWrite>, GradeError> {
    let mut writes = Vec::new();
    for InjectedFile { source, destination } in files {
        let below = sources.below(source)?.unwrap_or_else(|| vec![PathBuf::new()]);
        for path in below {
            // `join` with an empty path adds a slash.
            let join = |top: &Path| top.iter().chain(path.iter()).collect::<PathBuf>();
            writes.push(InjectedWrite {
                source: join(source),
                destination: text(&join(destination))?,
            });
        }
        if writes.len() > FILES_MAX {
            return Err(hidden(source, format!("more than {FILES_MAX} files are injected")));
        }
    }
    Ok(writes)
}

/// Fails if a file would be written below another.
fn check_destinations(writes: &[InjectedWrite]) -> Result<(), GradeError> {
    let files: BTreeSet<&str> = writes.iter().map(|write| write.destination.as_str()).collect();
    for below in &files {
        if let Some(path) = above(below).find(|path| files.contains(path)) {
            let (path, below) = (path.to_owned(), (*below).to_owned());
            return Err(GradeError::Inject { path, below });
        }
    }
    Ok(())
}

/// What stands at `paths` and above them, by path. Nothing below a link or a file is looked for.
fn entries_above(
    cell: &dyn CellExecutor,
    paths: &[String],
) -> Result<BTreeMap<String, EntryType>, ExecError> {
    let mut found = BTreeMap::new();
    let mut listed = BTreeSet::new();
    for path in paths {
        let directories = std::iter::once(".").chain(above(path));
        for directory in directories {
            let is_directory =
                directory == "." || found.get(directory) == Some(&EntryType::Directory);
            if !is_directory {
                break;
            }
            if !listed.insert(directory) {
                continue;
            }
            let entries = match cell.list(directory) {
                Err(error) if error.code == ExecCode::NotFound => Vec::new(),
                entries => entries?,
            };
            let name = |name: &str| match directory {
                "." => name.to_owned(),
                directory => format!("{directory}/{name}"),
            };
            found.extend(entries.iter().map(|entry| (name(&entry.name), entry.entry_type)));
        }
    }
    Ok(found)
}

/// What is removed so that files can be put at `destinations`: all that stands there, and all but directories above.
fn planned_removals(
    destinations: &[String],
    found: &BTreeMap<String, EntryType>,
) -> BTreeSet<String> {
    let in_the_way = |destination: &String| {
        let is_no_directory =
            |path: &&str| found.get(*path).is_some_and(|kind| *kind != EntryType::Directory);
        let blocking = above(destination).find(is_no_directory);
        let own = found.contains_key(destination).then_some(destination.as_str());
        blocking.or(own).map(str::to_owned)
    };
    destinations.iter().filter_map(in_the_way).collect()
}

/// The directories above `path`, the highest first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

fn text(path: &Path) -> Result<String, GradeError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| hidden(path, "the name is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn injected(pairs: &[(&str, &str)]) -> Vec<InjectedFile> {
        let file = |(source, destination): &(&str, &str)| InjectedFile {
            source: source.into(),
            destination: destination.into(),
        };
        pairs.iter().map(file).collect()
    }

    #[test]
    fn what_stands_at_a_destination_or_above_is_removed() {
        use EntryType::{Directory, File, Link, Other};
        for (guarantee, destination, found, removed) in [
            ("nothing is there", "a/b", &[][..], None),
            ("a directory above stays", "a/b", &[("a", Directory)], None),
            ("a file is replaced", "a/b", &[("a", Directory), ("a/b", File)], Some("a/b")),
            ("a directory is replaced", "a", &[("a", Directory)], Some("a")),
            ("a link is replaced", "a", &[("a", Link)], Some("a")),
            ("a fifo is replaced", "a", &[("a", Other)], Some("a")),
            ("a file above is replaced", "a/b/c", &[("a", File)], Some("a")),
            ("a link above is replaced", "a/b/c", &[("a", Directory), ("a/b", Link)], Some("a/b")),
            ("a name that begins alike is another", "ab/c", &[("a", File), ("abc", Link)], None),
        ] {
            let found = found.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect();
            let planned = planned_removals(&[destination.to_owned()], &found);
            assert_eq!(planned.iter().map(String::as_str).next(), removed, "{guarantee}");
        }
    }

    #[test]
    fn a_directory_is_written_file_by_file_and_conflicts_are_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("tests/data")).unwrap();
        for name in ["tests/test_a.py", "tests/data/x", "test_b.py"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let sources = HiddenFiles::open(place.path()).unwrap();
        let planned = |pairs: &[(&str, &str)]| {
            let writes = planned_writes(&sources, &injected(pairs))?;
            check_destinations(&writes)?;
            let names =
                |write: InjectedWrite| (write.source.display().to_string(), write.destination);
            Ok::<_, GradeError>(writes.into_iter().map(names).collect::<Vec<_>>())
        };
        let pair = |source: &str, destination: &str| (source.to_owned(), destination.to_owned());
        assert_eq!(
            planned(&[("tests", "t/u"), ("test_b.py", "t/test_b.py")]).unwrap(),
            [
                pair("tests/data/x", "t/u/data/x"),
                pair("tests/test_a.py", "t/u/test_a.py"),
                pair("test_b.py", "t/test_b.py"),
            ]
        );
        let refused = planned(&[("test_b.py", "t"), ("tests", "t")]).unwrap_err();
        let wanted = GradeError::Inject { path: "t".to_owned(), below: "t/data/x".to_owned() };
        assert_eq!(refused, wanted);
        planned(&[("gone", "t")]).unwrap_err();
    }
}
