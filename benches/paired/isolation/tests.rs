//! Tests of what the bench reads from `/proc`.

#![cfg(test)]

mod seen;

use seen::{Resource, bounds, capabilities, groups, process_limit, status_value};

const STATUS: &str =
    "Name:\tsleep\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\nSeccomp:\t2\nSeccomp_filters:\t3\n";

#[test]
fn a_value_of_the_status_is_found_by_its_whole_name() {
    let table = [("Seccomp", Some("2")), ("Seccomp_filters", Some("3")), ("CapBnd", None)];
    for (name, value) in table {
        assert_eq!(status_value(STATUS, name), value, "{name}");
    }
}

#[test]
fn the_capabilities_of_a_set_are_counted() {
    let table = [
        ("0000000000000000", Some(0)),
        ("00000000a80425fb", Some(14)),
        ("000001ffffffffff", Some(41)),
        ("", None),
    ];
    for (set, count) in table {
        assert_eq!(capabilities(set), count, "{set}");
    }
}

#[test]
fn the_group_of_a_controller_is_found_in_both_versions() {
    let first = "5:cpu,cpuacct:/x\n4:memory:/box/1\n0::/\n";
    let second = "0::/user.slice/box:1\n";
    let table = [
        (first, "memory", [Some("/box/1"), Some("/")]),
        (first, "cpuacct", [Some("/x"), Some("/")]),
        (first, "pids", [None, Some("/")]),
        (second, "memory", [None, Some("/user.slice/box:1")]),
        ("", "memory", [None, None]),
    ];
    for (cgroup, controller, expected) in table {
        assert_eq!(groups(cgroup, controller), expected, "{controller} in {cgroup:?}");
    }
}

#[test]
fn only_a_number_that_can_be_met_bounds_a_group() {
    let table = [
        ("536870912\n", true),
        ("64\n", true),
        ("max\n", false),
        ("9223372036854771712\n", false),
        ("", false),
    ];
    for (limit, is_bound) in table {
        assert_eq!(bounds(limit), is_bound, "{limit:?}");
    }
}

#[test]
fn the_limit_of_a_process_is_its_soft_one() {
    let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                  Max cpu time              10                   11                   seconds   \n\
                  Max processes             unlimited            unlimited            processes \n";
    let table =
        [(Resource::CpuTime, Some(10)), (Resource::Processes, None), (Resource::Memory, None)];
    for (resource, limit) in table {
        assert_eq!(process_limit(limits, resource), limit, "{resource:?}");
    }
}
