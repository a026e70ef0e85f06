//! Files that are put into a Cell, read from it, removed and listed.

use cofferdam::cases::{
    CellEntry, CellExecutorKind, EntryType, ExecCode, ExecRequest, Executor, FILE_BYTES_MAX,
};

use super::doors::{Scene, by_library};
use super::{entries, exited, has};

/// What is done to a file.
pub enum FileAct {
    Put(&'static [u8], u32),
    Get,
    Remove,
    List,
}

/// One access to a file of a Cell.
pub struct FileRow {
    pub guarantee: &'static str,
    /// What a command does before.
    pub before: &'static str,
    pub act: FileAct,
    pub path: &'static str,
    /// What a read returns, a line for each entry of a list, or nothing; or the error.
    pub wanted: Result<&'static [u8], ExecCode>,
    /// What a command prints afterwards.
    pub after: Option<(&'static str, &'static str)>,
}

pub fn put(
    guarantee: &'static str,
    before: &'static str,
    path: &'static str,
    wanted: Result<(), ExecCode>,
) -> FileRow {
    let wanted = wanted.map(|()| &b""[..]);
    FileRow { guarantee, before, act: FileAct::Put(b"new", 0), path, wanted, after: None }
}

pub fn get(
    guarantee: &'static str,
    before: &'static str,
    path: &'static str,
    wanted: Result<&'static [u8], ExecCode>,
) -> FileRow {
    FileRow { guarantee, before, act: FileAct::Get, path, wanted, after: None }
}

pub fn then(row: FileRow, command: &'static str, prints: &'static str) -> FileRow {
    FileRow { after: Some((command, prints)), ..row }
}

fn rows() -> Vec<FileRow> {
    let mut rows = put_rows();
    rows.extend(get_rows());
    rows.extend(entries::rows());
    rows
}

fn put_rows() -> Vec<FileRow> {
    let script = FileAct::Put(b"#!/bin/sh\necho ran\n", 0o755);
    vec![
        then(put("put makes the directories above", "", "p/q/r", Ok(())), "cat p/q/r", "new"),
        then(put("put replaces a file", "echo old > f", "f", Ok(())), "cat f", "new"),
        then(
            put(
                "put replaces a link and does not follow it",
                "echo old > g; ln -s g h",
                "h",
                Ok(()),
            ),
            "cat g h",
            "old\nnew",
        ),
        then(
            put("the owner of a file that is put is the command's", "", "own", Ok(())),
            "[ $(stat -c %u own) = $(id -u) ] && echo own",
            "own\n",
        ),
        then(
            FileRow { act: script, ..put("put sets the permissions", "", "run", Ok(())) },
            "./run",
            "ran\n",
        ),
        put(
            "put through a link is refused",
            "ln -s . through",
            "through/x",
            Err(ExecCode::UnsafePath),
        ),
        put("put onto a fifo is refused", "mkfifo pf", "pf", Err(ExecCode::UnsafePath)),
        put("put onto a directory is refused", "mkdir pd", "pd", Err(ExecCode::IsDirectory)),
        put(
            "put onto a file that may not be written is refused",
            "echo > ro; chmod 444 ro",
            "ro",
            Err(ExecCode::PermissionDenied),
        ),
        put("put outside the Cell is refused", "", "../../x", Err(ExecCode::UnsafePath)),
        put(
            "put to an absolute path of the host is refused",
            "",
            "/etc/x",
            Err(ExecCode::UnsafePath),
        ),
    ]
}

fn get_rows() -> Vec<FileRow> {
    vec![
        get("get returns every byte", "printf 'a\\000\\377\\n' > bytes", "bytes", Ok(b"a\0\xff\n")),
        get("get returns an empty file", ": > empty", "empty", Ok(b"")),
        get("get follows a link inside the Cell", "", "link", Ok(b"inner\n")),
        get("get of a missing file is refused", "", "no/such", Err(ExecCode::NotFound)),
        get("get of a directory is refused", "", "dir", Err(ExecCode::IsDirectory)),
        get(
            "get of a fifo is refused and does not wait",
            "mkfifo gf",
            "gf",
            Err(ExecCode::UnsafePath),
        ),
        get(
            "get of a file that may not be read is refused",
            "echo > no; chmod 000 no",
            "no",
            Err(ExecCode::PermissionDenied),
        ),
        get(
            "get through a link to the host is refused",
            "ln -s /etc/passwd out",
            "out",
            Err(ExecCode::UnsafePath),
        ),
        get(
            "get through a link above the Cell is refused",
            "ln -s ../../../../../../../etc/passwd up",
            "up",
            Err(ExecCode::UnsafePath),
        ),
        get(
            "get of a link to itself is refused",
            "ln -s round round",
            "round",
            Err(ExecCode::UnsafePath),
        ),
        get(
            "get of 100 MiB and one byte is refused",
            "truncate -s 104857601 large",
            "large",
            Err(ExecCode::TooLarge),
        ),
        get("get outside the Cell is refused", "", "/etc/passwd", Err(ExecCode::UnsafePath)),
    ]
}

/// The guarantees of this file.
pub fn guarantees() -> Vec<&'static str> {
    let mut all: Vec<_> = rows().into_iter().map(|row| row.guarantee).collect();
    all.push("put of 100 MiB and one byte is refused");
    all
}

/// What is wrong with `row` in `cell`.
fn fault(cell: &dyn Executor, row: &FileRow) -> Option<String> {
    let shell = |command| by_library(cell, &ExecRequest::new(["sh", "-c", command]));
    if !row.before.is_empty() && !has(&shell(row.before), &exited(0, "")) {
        return Some(format!("before: {}", shell(row.before)));
    }
    let done = match row.act {
        FileAct::Put(content, mode) => cell.put(row.path, content, mode).map(|()| Vec::new()),
        FileAct::Get => cell.get(row.path),
        FileAct::Remove => cell.remove(row.path).map(|()| Vec::new()),
        FileAct::List => cell.list(row.path).map(|entries| lines(&entries)),
    };
    let found = done.as_deref().map_err(|error| error.code);
    if found != row.wanted {
        return Some(format!("{done:?}, not {:?}", row.wanted));
    }
    let (command, prints) = row.after?;
    let printed = shell(command);
    (!has(&printed, &exited(0, prints))).then(|| printed.to_string())
}

/// A line for each entry.
fn lines(entries: &[CellEntry]) -> Vec<u8> {
    let line = |entry: &CellEntry| match entry.entry_type {
        EntryType::File => format!("file {} {}\n", entry.name, entry.bytes),
        other => format!("{} {}\n", other.word(), entry.name),
    };
    entries.iter().map(line).collect::<String>().into_bytes()
}

#[test]
fn files_are_put_read_removed_and_listed_inside_the_cell_only() {
    let Some(scene) = Scene::new() else { return };
    let mut wrong = Vec::new();
    for kind in scene.executors() {
        let cell = scene.started(kind, "");
        for row in rows() {
            let fault = fault(cell.as_ref(), &row);
            wrong.extend(fault.map(|fault| format!("{kind:?}: {}: {fault}", row.guarantee)));
        }
        let large = vec![0; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
        assert_eq!(cell.put("big", &large, 0).unwrap_err().code, ExecCode::TooLarge);
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn an_absolute_path_is_the_one_that_commands_see() {
    let Some(scene) = Scene::new() else { return };
    for kind in scene.executors() {
        let cell = scene.started(kind, "");
        let described = cell.describe().unwrap();
        for directory in [described.sandbox, described.env] {
            let path = directory.join("absolute");
            cell.put(path.to_str().unwrap(), b"x", 0).unwrap();
            let request = ExecRequest::new(["cat", path.to_str().unwrap()]);
            let read = by_library(cell.as_ref(), &request);
            assert!(has(&read, &exited(0, "x")), "{kind:?}: {read}");
        }
        let is_sandboxed = kind == CellExecutorKind::Sandboxed;
        assert_eq!(cell.get("/workspace/kept.txt").is_ok(), is_sandboxed);
    }
}
