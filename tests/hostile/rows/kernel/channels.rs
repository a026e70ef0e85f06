//! Channels from one run to another or to the network.

use serde_json::json;

use super::answers::{
    Expected, OK, REFUSED, answers_in, answers_told, assert_each, texts, together,
};
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

const RINGS: &[&str] = &["thread", "process", "session", "user", "user-session"];

pub fn keyrings(target: &Target) -> Result<(), Unexercised> {
    let looked_for = || {
        Expected::default()
            .each("id-", RINGS, REFUSED)
            .each("search-", RINGS, REFUSED)
            .all(&["request", "join"], REFUSED)
            .all(&["listed"], &["none"])
    };
    let left = || {
        looked_for()
            .each("add-", RINGS, REFUSED)
            .each("open-", RINGS, REFUSED)
            .all(&["link-session", "persistent"], REFUSED)
    };
    let leave = Probe::c("keyrings").arg("leave");
    let look = Probe::c("keyrings").arg("look");
    left().hold(answers_told(&target.observe(&leave)));
    looked_for().hold(answers_told(&target.observe(&look)));
    let (held, seen) = together(target, &leave.arg("1500"), &look);
    left().hold(answers_told(&held));
    looked_for().hold(answers_told(&seen));
    Ok(())
}

pub fn sockets(target: &Target) -> Result<(), Unexercised> {
    meetings(target);
    families(target);
    Ok(())
}

const MEETINGS: &[&str] = &[
    "abstract-stream",
    "abstract-datagram",
    "abstract-packets",
    "tcp",
    "tcp-other-loopback",
    "udp",
];
/// Without IPv6 on the host, a sandbox has none either.
const MEETINGS_6: &[&str] = &["tcp6", "udp6"];
const OUTSIDE: &[&str] = &["everybody", "group", "metadata", "bridge", "internet", "service"];
const NOBODY_THERE: &[&str] =
    &["ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EPERM"];

fn meetings(target: &Target) {
    let port = target.port();
    let listen = Probe::python("channels").arg("listen").arg(port).arg(2);
    let call = Probe::python("channels").arg("call").arg(port).arg(0);
    let (heard, called) = together(target, &listen, &call);
    Expected::default()
        .all(MEETINGS, OK)
        .all(MEETINGS_6, &["ok", "EAFNOSUPPORT", "EADDRNOTAVAIL"])
        .hold(answers_in(&heard["answers"]));
    for meeting in MEETINGS {
        let said = format!("self-{meeting}");
        assert!(texts(&heard["to_itself"]).contains(&said.as_str()), "{meeting}: {heard}");
    }
    assert_eq!(heard["from_others"], json!([]), "{heard}");
    Expected::default()
        .all(MEETINGS, NOBODY_THERE)
        .all(MEETINGS_6, NOBODY_THERE)
        .all(OUTSIDE, NOBODY_THERE)
        .hold(answers_in(&called["answers"]));
}

/// Families besides the IP and local ones, which stay inside the sandbox.
const FAMILIES: &[&str] = &[
    "x25",
    "appletalk",
    "ipx",
    "ax25",
    "netrom",
    "rose",
    "key",
    "packet",
    "atm-pvc",
    "atm-svc",
    "rds",
    "pppox",
    "llc",
    "can",
    "tipc",
    "bluetooth",
    "rxrpc",
    "phonet",
    "ieee802154",
    "caif",
    "alg",
    "nfc",
    "vsock",
    "kcm",
    "qipcrtr",
    "smc",
    "xdp",
    "mctp",
    "sctp",
    "dccp",
    "udplite",
    "mptcp",
    "l2tp",
];
const NETLINK: &[&str] = &[
    "sock-diag",
    "xfrm",
    "selinux",
    "iscsi",
    "audit",
    "connector",
    "netfilter",
    "uevent",
    "generic",
    "crypto",
];

fn families(target: &Target) {
    const NO_SOCKET: &[&str] = &["EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"];
    const NO_CHANGE: &[&str] = &["EPERM", "EACCES", "ENOTTY", "EPROTONOSUPPORT", "EAFNOSUPPORT"];
    let raw = &["icmp", "tcp", "udp", "any"];
    Expected::default()
        .all(FAMILIES, NO_SOCKET)
        .each("netlink-", NETLINK, NO_SOCKET)
        .each("raw4-", raw, NO_SOCKET)
        .each("raw6-", raw, NO_SOCKET)
        .all(&["packet4", "packet6"], NO_SOCKET)
        .each("new-", &["link", "address", "route"], NO_CHANGE)
        .all(&["loopback-down"], NO_CHANGE)
        .all(&["interfaces"], &["lo"])
        .all(&["allowed"], OK)
        .hold(answers_in(&target.observe(&Probe::python("socket_families"))));
}

pub fn locks(target: &Target) -> Result<(), Unexercised> {
    const SHARED: &[&str] = &["/", "/etc", "/etc/passwd", "/usr", "/usr/bin/env", "/dev/null"];
    const OWN: &[&str] = &["/workspace/Makefile", "/workspace", "/tmp"];
    let lock = Probe::python("locks").arg("lock").arg(2);
    let look = Probe::python("locks").arg("look").arg(0);
    let (held, seen) = together(target, &lock, &look);
    for path in SHARED {
        let tried = &held["locked"][path];
        assert_eq!((&tried["flock"], &tried["posix"]), (&json!("ok"), &json!("ok")), "{path}");
        for lease in ["lease-read", "lease-write"] {
            let answer = tried[lease].as_str().unwrap();
            assert!(["EACCES", "EPERM", "EINVAL"].contains(&answer), "{lease} {path}: {answer}");
        }
    }
    // Leases are refused even where the kernel would grant one.
    assert_eq!(held["lease-own"], "EINVAL", "{held}");
    assert_each(&seen["worked"], OK);
    assert_eq!(seen["programs"], "ok", "{seen}");
    // A lock is granted or refused at once; files private to a run are locked only by that run.
    assert_each(&seen["locks"], &["ok", "EAGAIN"]);
    for path in OWN {
        assert_eq!(seen["locks"][path], "ok", "{path}");
    }
    let after = target.observe(&look);
    assert_each(&after["locks"], OK);
    Ok(())
}
