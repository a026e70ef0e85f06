//! The controls of a sandbox, for its figures.

use std::collections::BTreeSet;

/// The controls there are. Those a host may lack have these names in `not_enforced` too.
const CONTROLS: [&str; 8] =
    ["cpu", "disk", "landlock", "memory", "namespaces", "processes", "seccomp", "uid"];

/// Every control, and whether `not_enforced` (each entry its name and the reason) lacks it.
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
    fn what_is_not_enforced_is_never_said_to_be_whatever_its_name() {
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
