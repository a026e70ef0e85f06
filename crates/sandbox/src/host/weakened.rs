//! One wall taken down, in builds made with `--cfg cofferdam_weakened` and in no other: a test of
//! hostile tenants that holds without the wall it is about has proved nothing.

/// A wall that can be taken down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// The filters of the program and of its init.
    Seccomp,
    /// A host uid of the box's own, and the user namespace over it.
    User,
    /// Every cgroup of the box.
    Cgroup,
    /// The PID namespace.
    Pid,
    /// The network namespace.
    Net,
    /// The mapped ids of shown trees.
    Unowned,
}

/// Whether this is a weakened build told to do without `wall`.
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

/// Every wall stands.
#[cfg(not(cofferdam_weakened))]
pub const fn lacks(_: Wall) -> bool {
    false
}
