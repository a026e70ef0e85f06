//! The controls of a sandbox, for its figures.

use std::collections::BTreeSet;

/// All controls. `not_enforced` uses the same names for those that a host lacks.
const CONTROLS: [&str; 8] =
    ["cpu", "disk", "landlock", "memory", "namespaces", "processes", "seccomp", "uid"];

/// Every control, and whether it is enforced: not named in `not_enforced`, whose entries are a name
/// and a reason.
pub fn controls(not_enforced: &[String]) -> Vec<(String, bool)> {
    let names = not_enforced.iter().filter_map(|gap| gap.split_once(": "));
    let missing: BTreeSet<&str> = names.map(|(name, _)| name).collect();
    let all: BTreeSet<&str> = CONTROLS.into_iter().chain(missing.iter().copied()).collect();
    all.into_iter().map(|name| (name.to_owned(), !missing.contains(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_that_is_not_enforced_is_never_reported_as_enforced() {
        let gaps = ["memory: no cgroup controller", "uid: no user namespace (x: y)", "new: z"];
        let found = controls(&gaps.map(str::to_owned));
        let of = |enforced: bool| -> Vec<&str> {
            let named = found.iter().filter(|(_, is)| *is == enforced);
            named.map(|(name, _)| name.as_str()).collect()
        };
        assert_eq!(of(false), ["memory", "new", "uid"]);
        assert_eq!(of(true), ["cpu", "disk", "landlock", "namespaces", "processes", "seccomp"]);
    }
}
