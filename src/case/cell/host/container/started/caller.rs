//! Who runs this program, as an engine knows it.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{getegid, geteuid};

use crate::case::cell::error::ExecError;
use crate::case::cell::host::container::engine::{CallerLimits, ContainerUser};

/// The caller as the engine knows it.
pub(super) fn caller() -> Result<ContainerUser, ExecError> {
    let id_outside = |map: &str, id: u32| {
        let text = fs::read_to_string(map);
        let text = text.map_err(|error| ExecError::failed("read ids", error))?;
        mapped_id(&text, id).ok_or_else(|| ExecError::failed("read ids", "the caller has none"))
    };
    Ok(ContainerUser::Caller {
        uid: id_outside("/proc/self/uid_map", geteuid().as_raw())?,
        gid: id_outside("/proc/self/gid_map", getegid().as_raw())?,
    })
}

/// The id outside that `map`, a map of a user namespace, has for `id`.
fn mapped_id(map: &str, id: u32) -> Option<u32> {
    let mut ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    });
    ranges.find_map(|(inside, outside, count)| {
        let offset = id.checked_sub(inside).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    })
}

/// What a container of the caller can have at most.
pub(super) fn hard_limits() -> Result<CallerLimits, ExecError> {
    let hard = |resource| {
        let limits = getrlimit(resource);
        limits.map(|(_, hard)| hard).map_err(|errno| ExecError::failed("read limits", errno))
    };
    Ok(CallerLimits {
        open_files: hard(Resource::RLIMIT_NOFILE)?,
        tasks: hard(Resource::RLIMIT_NPROC)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_that_outside_of_our_user_namespace() {
        for (map, id, wanted) in [
            ("         0          0 4294967295\n", 1000, Some(1000)),
            ("0 1000 1\n", 0, Some(1000)),
            ("0 1000 1\n", 1, None),
            ("0 100 10\n10 500 10\n", 12, Some(502)),
            ("", 0, None),
        ] {
            assert_eq!(mapped_id(map, id), wanted, "{map:?}");
        }
    }
}
