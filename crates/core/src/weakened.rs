//! Removes one wall, only in builds with `--cfg cofferdam_weakened`: a test with a hostile tenant
//! proves something only if it fails without its wall.
//!
//! No Cargo feature sets that `cfg`, so a build has it only where `RUSTFLAGS` names it.

/// A wall that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// The filters of the program and of its init.
    Seccomp,
    /// The sandbox's own host uid, and its user namespace.
    User,
    /// Every cgroup of the sandbox.
    Cgroup,
    /// The PID namespace.
    Pid,
    /// The network namespace.
    Net,
    /// The mapped ids of shown trees.
    Unowned,
    /// The refusal of paths that lead out of a workspace.
    Paths,
    /// The resolution of paths beneath a descriptor, without links.
    Beneath,
    /// The refusal to read what is no regular file.
    Regular,
    /// The judgement of an archive before its first file is written.
    Archive,
    /// The limit of bytes and inodes of a workspace in memory.
    Quota,
    /// The limit of the output that a session keeps.
    Window,
    /// The number of a session's viewers, and what one may leave unread.
    Viewers,
    /// The limit of a program's unread input.
    Input,
    /// The check of the files that a kernel names as results.
    Results,
    /// The halt of programs while a snapshot copies their files.
    Freeze,
    /// The name of the token that a request was sent with.
    Owner,
}

/// Whether this is a weakened build that runs without `wall`.
#[cfg(cofferdam_weakened)]
pub fn lacks(wall: Wall) -> bool {
    let name = match wall {
        Wall::Seccomp => "seccomp",
        Wall::User => "user",
        Wall::Cgroup => "cgroup",
        Wall::Pid => "pid",
        Wall::Net => "net",
        Wall::Unowned => "unowned",
        Wall::Paths => "paths",
        Wall::Beneath => "beneath",
        Wall::Regular => "regular",
        Wall::Archive => "archive",
        Wall::Quota => "quota",
        Wall::Window => "window",
        Wall::Viewers => "viewers",
        Wall::Input => "input",
        Wall::Results => "results",
        Wall::Freeze => "freeze",
        Wall::Owner => "owner",
    };
    std::env::var_os("COFFERDAM_WITHOUT").is_some_and(|without| without == name)
}

/// No wall is missing.
#[cfg(not(cofferdam_weakened))]
pub const fn lacks(_: Wall) -> bool {
    false
}
