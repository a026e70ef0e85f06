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
    /// The permissions of read-only trees.
    ReadOnly,
    /// The numbers of things that there may only be so many of.
    Tally,
    /// The refusal to save an output that was cut.
    Whole,
    /// The group of a program in a shared sandbox, in which all of it dies.
    Group,
    /// The state of the init of a shared sandbox that no program may inspect.
    Init,
    /// The list of hosts that a program may reach.
    Allow,
    /// The judgement of the addresses that a host has.
    Address,
    /// The refusal of a request that names two hosts.
    Host,
    /// The comparison of the name in a ClientHello with the host of its tunnel.
    Sni,
    /// The port of the egress proxy, which no other socket may share.
    Port,
    /// The restoration of files that decide how tests run.
    Restored,
    /// The tests' own files, which replace whatever the agent left at their places.
    Replaced,
    /// The base with the compared files as what tests get, instead of the agent's tree.
    Compared,
    /// The files that each test gets, in which no other test has run.
    Fresh,
    /// The tests and solutions that agents do not see.
    Hidden,
    /// The environment of agents, which has nothing of the service's.
    Clean,
    /// The end of an agent's repository at its commit.
    History,
    /// The redaction of an agent's secret values.
    Redacted,
    /// The limit of a patch.
    Bounded,
    /// The names that a sandbox's authority may speak for.
    Constraint,
    /// The comparison of the hosts that a judged request, its TLS and its tunnel name.
    Agreement,
    /// The search of answers for secrets that were sent.
    Redaction,
    /// The hosts to which a placeholder's secret may go, and its places in a request.
    Placeholder,
    /// The choice of the rule that fits a request, and what a rule has to allow by name.
    Rules,
    /// The one form of a path, which is judged and sent.
    Canonical,
    /// The requests, bytes and time that a rule allows.
    Allowance,
    /// The imports of the runner of tests, which come from the environment alone.
    Isolated,
    /// The codes and numbers of what the runner of tests reports.
    Framed,
    /// The test that has to fail.
    Canary,
    /// The marks without which a test that skips itself has failed.
    Marked,
    /// The tests that were collected, each of which has to end.
    Counted,
    /// What a program that was started ahead has to show before it gets a run.
    Ready,
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
        Wall::ReadOnly => "readonly",
        Wall::Tally => "tally",
        Wall::Whole => "whole",
        Wall::Group => "group",
        Wall::Init => "init",
        Wall::Allow => "allow",
        Wall::Address => "address",
        Wall::Host => "host",
        Wall::Sni => "sni",
        Wall::Port => "port",
        Wall::Restored => "restored",
        Wall::Replaced => "replaced",
        Wall::Compared => "compared",
        Wall::Fresh => "fresh",
        Wall::Hidden => "hidden",
        Wall::Clean => "clean",
        Wall::History => "history",
        Wall::Redacted => "redacted",
        Wall::Bounded => "bounded",
        Wall::Constraint => "constraint",
        Wall::Agreement => "agreement",
        Wall::Redaction => "redaction",
        Wall::Placeholder => "placeholder",
        Wall::Rules => "rules",
        Wall::Canonical => "canonical",
        Wall::Allowance => "allowance",
        Wall::Isolated => "isolated",
        Wall::Framed => "framed",
        Wall::Canary => "canary",
        Wall::Marked => "marked",
        Wall::Counted => "counted",
        Wall::Ready => "ready",
    };
    std::env::var_os("COFFERDAM_WITHOUT").is_some_and(|without| without == name)
}

/// No wall is missing.
#[cfg(not(cofferdam_weakened))]
pub const fn lacks(_: Wall) -> bool {
    false
}
