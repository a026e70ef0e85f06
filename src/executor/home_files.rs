//! The files in the HOME of a sandbox that tell programs how they reach something.

use std::os::fd::BorrowedFd;

use cofferdam_core::EgressService;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_tree::{Owner, put_if_absent};

/// HOME of programs, below the root of their files.
const HOME: &str = "tmp/home";

/// Writes the files of `egress` into HOME below `root`. What is there already stays: it may be the user's own.
/// A file that cannot be written is left out, since a program can do without it.
pub fn put_home_files(root: BorrowedFd<'_>, owner: Owner, egress: &dyn EgressService) {
    for (name, text) in egress.home_files() {
        let path = RelPath::parse(&format!("{HOME}/{name}")).map_err(|error| error.to_string());
        let put = path.and_then(|path| {
            let put = put_if_absent(root, &path, text.as_bytes(), owner);
            put.map_err(|error| error.to_string())
        });
        if let Err(reason) = put {
            log::debug!("a file of HOME is left out: {reason}");
        }
    }
}
