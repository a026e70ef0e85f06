//! Forks of forks, without end.

use cofferdam_test_server::host::resident_bytes;
use cofferdam_test_server::service::wait_until;
use serde_json::json;

use crate::Unexercised;
use crate::aftermath::HostState;
use crate::engine::{EngineClient, SOON, WORKSPACES, Workspace, promptly};
use crate::rows::at_once;
use crate::target::Target;

/// More than the layers that an overlay of a workspace may have.
const DEEP: usize = 70;
/// Clients that fork at once, and how often each does.
const CLIENTS: usize = 4;
const WIDE: usize = 3;
const SNAPSHOTS_MAX: usize = 5;
/// What the service may keep of memory that it has used, MiB.
const KEPT_MIB_MAX: u64 = 16;

pub fn forks_without_end(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    target.engine()?;
    let directory = tempfile::tempdir().unwrap();
    let setup = own.another().env("ENGINE_STORE_DIR", directory.path().join("engine"));
    let setup = setup.env("STANDBY_MAX", "0").env("JOBS", "off");
    let service = setup.env("ENGINE_SNAPSHOTS_MAX", SNAPSHOTS_MAX.to_string()).start();
    let client = EngineClient::new(service.address, String::new(), None);
    // The host ids of as many workspaces stay reserved from the first use on.
    fork_all(&client);
    assert_empty(&client);
    let before = HostState::settled(&service);
    let resident = resident_bytes(service.pid());
    fork_all(&client);
    assert_empty(&client);
    before.assert_holds_for(&service);
    let kept = resident_bytes(service.pid()).saturating_sub(resident);
    assert!(kept <= KEPT_MIB_MAX << 20, "{kept} bytes");
    Ok(())
}

fn assert_empty(client: &EngineClient) {
    assert_eq!(client.get(WORKSPACES).json()["workspaces"], json!([]));
    assert_eq!(client.get("/v1/snapshots").json()["snapshots"], json!([]));
    wait_until("nothing is charged", SOON, || {
        let metrics = String::from_utf8(client.get("/metrics").body).unwrap();
        metrics.lines().any(|line| line == "cofferdam_workspaces_disk_bytes 0")
    });
}

/// Forks a chain and a crowd, takes snapshots, and deletes all, the oldest first.
fn fork_all(client: &EngineClient) {
    let fork = |of: &Workspace<'_>| promptly("a fork", || of.post("/fork", &json!({})));
    let mut chain = vec![client.create(&json!({}))];
    for level in 0..DEEP {
        let last = chain.last().unwrap();
        last.put(&format!("work/level{level}"), b"x");
        let next = client.made(&fork(last));
        // Every layer is in use: the source has gone on.
        last.put("work/after", b"x");
        chain.push(next);
    }
    let last = chain.last().unwrap();
    assert_eq!(last.sh("ls work | wc -l"), format!("{DEEP}\n"));
    let forked = at_once(CLIENTS, |number| {
        let of = &chain[number * DEEP / CLIENTS];
        let forks: Vec<_> = (0..WIDE).map(|_| client.made(&fork(of))).collect();
        // A fork bomb: each fork of a fork.
        let forks: Vec<_> =
            forks.into_iter().flat_map(|of| [client.made(&fork(&of)), of]).collect();
        assert_eq!(
            forks[0].sh("echo $(ls work/level* 2>/dev/null | wc -l)").trim().parse(),
            Ok(number * DEEP / CLIENTS + 1)
        );
        forks
    });
    let taken: Vec<_> = (0..=SNAPSHOTS_MAX).map(|_| last.post("/snapshot", &json!({}))).collect();
    let (refused, taken) = taken.split_last().unwrap();
    for reply in taken {
        assert_eq!(reply.status, 201, "{}", reply.json());
        let id = reply.json()["snapshot_id"].as_str().unwrap().to_owned();
        assert_eq!(client.ask("DELETE", &format!("/v1/snapshots/{id}"), b"").status, 204);
    }
    refused.assert_error(429, "workspace.limit");
    drop((chain, forked));
}
