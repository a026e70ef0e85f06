//! Resources of the server that a run could inherit by accident.

use serde_json::{Value, json};

use super::answers::{REFUSED, UNREACHABLE, answers_in, assert_each};
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

pub fn descriptors(target: &Target) -> Result<(), Unexercised> {
    let secret = target.own().map(|own| own.sentinel.path());
    let secret = secret.as_deref().ok().and_then(|path| path.to_str()).unwrap_or("/root/.profile");
    let seen = target.observe(&Probe::python("descriptors").arg(secret));
    assert_held(&seen["held"]);
    assert_eq!(seen["climbed"], json!({}), "directories among its descriptors");
    let links = answers_in(&seen["links"]);
    assert_eq!(links["/proc/self/cwd"], "ok");
    for link in ["/proc/1/root", "/proc/1/cwd", "/proc/1/exe"] {
        assert!(UNREACHABLE.contains(&links[link].as_str()), "{link}: {links:?}");
    }
    assert_eq!((&seen["ups"], &seen["root"]), (&json!(true), &json!(true)), "above its root");
    assert!(REFUSED.contains(&seen["chroot"].as_str().unwrap()), "{}", seen["chroot"]);
    assert_each(&seen["secret"], UNREACHABLE);
    assert_eq!(seen["readable"], "ok", "what it may read");
    let open = seen["open"].as_array().unwrap();
    if target.own().is_ok() {
        // The server was started with these descriptors open.
        let given = open.iter().filter(|number| [7, 8, 9].iter().any(|given| *number == given));
        assert_eq!(given.count(), 0, "{open:?}");
    }
    Ok(())
}

/// Allows pipes, /dev/null and the run's own files.
#[track_caller]
fn assert_held(held: &Value) {
    const OWN: &[&str] = &["pipe:[", "/dev/null", "/tmp/", "/workspace/"];
    let mut numbers = 0;
    for (pid, descriptors) in held.as_object().unwrap() {
        if let Some(refusal) = descriptors.as_str() {
            assert!(UNREACHABLE.contains(&refusal), "{pid}: {refusal}");
            continue;
        }
        for (number, target) in answers_in(descriptors) {
            // The listed directory itself is one of them.
            let is_own = OWN.iter().any(|own| target.starts_with(own))
                || target == format!("/proc/{pid}/fd");
            assert!(is_own, "descriptor {number} of {pid} is {target}");
            numbers += 1;
        }
    }
    assert!(numbers >= 3, "not even its own: {held}");
}

pub fn programs(target: &Target) -> Result<(), Unexercised> {
    let seen = target.observe(&Probe::python("programs"));
    assert_eq!((&seen["own_is_regular"], &seen["borrowed"]), (&json!(true), &json!(0)), "{seen}");
    let processes = seen["seen"].as_object().unwrap();
    let (mine, others): (Vec<_>, Vec<_>) =
        processes.values().partition(|process| process["owner"] == "10001");
    assert!(!mine.is_empty(), "not even its own: {seen}");
    for process in mine {
        let program = process["program"].as_str().unwrap();
        let is_of_root = program.starts_with('/')
            && !program.starts_with("/memfd:")
            && !program.ends_with(" (deleted)")
            && !program.contains("cofferdam");
        assert!(is_of_root, "{program}");
        assert_refused(&process["write"]);
    }
    for process in others {
        assert_refused(&process["program"]);
        assert_refused(&process["write"]);
    }
    for what in ["run_init", "read_init", "path_init", "memory_init", "maps_init"] {
        assert_refused(&seen[what]);
    }
    assert_eq!(seen["memory_files"], json!([]));
    Ok(())
}

#[track_caller]
fn assert_refused(answer: &Value) {
    let answer = answer.as_str().unwrap();
    assert!(UNREACHABLE.contains(&answer) || answer == "ETXTBSY", "{answer}");
}
