//! Removes one wall, only in builds with `--cfg cofferdam_weakened`: a test with a hostile tenant
//! proves something only if it fails without its wall.

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
    };
    std::env::var_os("COFFERDAM_WITHOUT").is_some_and(|without| without == name)
}

/// No wall is missing.
#[cfg(not(cofferdam_weakened))]
pub const fn lacks(_: Wall) -> bool {
    false
}
