//! How much an agent may use.

use serde_json::json;

use super::scene::{CaseScene, MENDS, assert_lost};
use crate::Unexercised;
use crate::target::Target;

const MIB: u64 = 1 << 20;

pub fn amounts(target: &Target) -> Result<(), Unexercised> {
    let blocks = json!({
        "limits": {"memory_bytes": 64 * MIB, "processes": 32, "disk_bytes": 16 * MIB},
        "graders": [{"type": "command", "cmd": "grep -q 42 mod.py"}],
    });
    let scene = CaseScene::new(target, &[], blocks)?;
    let memory = format!("python3 -c 'x = b\"x\" * (200 << 20)' && {MENDS}");
    let children = "for process in $(seq 20); do python3 -c 'x = b\"x\" * (12 << 20); import time; time.sleep(1)' & \
                    children=\"$children $!\"; done; for child in $children; do wait $child || exit 1; done";
    let children = format!("{children}; {MENDS}");
    let fork = "import os, time\nfor _ in range(60): os.fork() or (time.sleep(5), os._exit(0))";
    let processes = format!("python3 -c '{fork}' && {MENDS}");
    let disk = format!("set -e; head -c 48M /dev/zero > /env/large; {MENDS}");
    let temporary = format!(
        "set -e; head -c 24M /dev/zero > /tmp/large; head -c 24M /dev/zero > large; rm large; {MENDS}"
    );
    let agents = [
        ("memory", &*memory),
        ("children", &children),
        ("processes", &processes),
        ("disk", &disk),
        ("temporary", &temporary),
        ("honest", MENDS),
    ];
    let results = scene.run(&agents, 1);
    for (name, _) in &agents[..5] {
        assert_lost(&results.of(name, 1));
    }
    let outcome = &results.of("memory", 1)["agent"];
    assert_eq!(outcome["outcome"], "memory_limit", "{outcome}");
    let honest = results.of("honest", 1);
    assert_eq!(honest["overall_passed"], true, "{honest:#}");
    Ok(())
}
