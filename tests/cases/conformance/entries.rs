//! Entries of a Cell that are removed and listed.

use cofferdam::cases::ExecCode;

use super::files::{FileAct, FileRow, get, put, then};

/// The rows of this file.
pub fn rows() -> Vec<FileRow> {
    let mut rows = remove_rows();
    rows.extend(list_rows());
    rows
}

fn remove(
    guarantee: &'static str,
    before: &'static str,
    path: &'static str,
    wanted: Result<(), ExecCode>,
) -> FileRow {
    FileRow { act: FileAct::Remove, ..put(guarantee, before, path, wanted) }
}

fn list(
    guarantee: &'static str,
    before: &'static str,
    path: &'static str,
    wanted: Result<&'static [u8], ExecCode>,
) -> FileRow {
    FileRow { act: FileAct::List, ..get(guarantee, before, path, wanted) }
}

fn remove_rows() -> Vec<FileRow> {
    vec![
        then(
            remove("remove removes a file", "echo > rf", "rf", Ok(())),
            "[ -e rf ] || echo gone",
            "gone\n",
        ),
        then(
            remove(
                "remove removes a directory with everything in it",
                "mkdir -p rd/a/b; echo > rd/a/b/c; ln -s ../../dir rd/a/l",
                "rd",
                Ok(()),
            ),
            "[ -e rd ] || cat dir/inner",
            "inner\n",
        ),
        then(
            remove(
                "remove removes a link and not what it leads to",
                "echo kept > rt; ln -s rt rl",
                "rl",
                Ok(()),
            ),
            "cat rt; [ -L rl ] || echo gone",
            "kept\ngone\n",
        ),
        then(
            remove("remove removes a fifo", "mkfifo rp", "rp", Ok(())),
            "[ -e rp ] || echo gone",
            "gone\n",
        ),
        remove("remove of what is missing does nothing", "", "absent/such", Ok(())),
        then(
            remove(
                "remove through a link is refused",
                "mkdir ra; echo > ra/x; ln -s ra rb",
                "rb/x",
                Err(ExecCode::UnsafePath),
            ),
            "ls ra",
            "x\n",
        ),
        remove("remove of the sandbox itself is refused", "", ".", Err(ExecCode::UnsafePath)),
        remove("remove outside the Cell is refused", "", "../../x", Err(ExecCode::UnsafePath)),
    ]
}

fn list_rows() -> Vec<FileRow> {
    vec![
        list(
            "list has the names, types and sizes of a directory",
            "mkdir -p la/d/e; printf abc > la/f; ln -s f la/l; mkfifo la/p",
            "la",
            Ok(b"directory d\nfile f 3\nlink l\nother p\n"),
        ),
        list("list of an empty directory has nothing", "mkdir le", "le", Ok(b"")),
        list(
            "list leaves out names that are not UTF-8",
            "mkdir lu; touch lu/a lu/$(printf '\\377')",
            "lu",
            Ok(b"file a 0\n"),
        ),
        list("list of what is missing is refused", "", "absent", Err(ExecCode::NotFound)),
        list("list of a file is refused", "", "plain", Err(ExecCode::NotFound)),
        list("list of a link is refused", "ln -s dir lk", "lk", Err(ExecCode::UnsafePath)),
        list(
            "list through a link is refused",
            "mkdir -p lt/d; ln -s lt lv",
            "lv/d",
            Err(ExecCode::UnsafePath),
        ),
        list("list outside the Cell is refused", "", "/etc", Err(ExecCode::UnsafePath)),
    ]
}
