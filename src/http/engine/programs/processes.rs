//! The processes of a workspace whose programs share one sandbox.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use crate::http::engine::query::{QueryParams, WORKSPACES, workspace_id};
use crate::http::engine::state::{EngineState, parse};
use crate::http::request::access::token_name;
use crate::http::response;
use crate::workspace::ProcessView;

/// Lists the processes.
pub async fn list(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Serialize)]
    struct ProcessesBody {
        processes: Vec<ProcessView>,
    }
    let (head, _) = request.into_parts();
    let listed = async {
        let owner = token_name(&head.extensions);
        let id = workspace_id(&head.uri)?;
        QueryParams::parse(&head.uri, &[])?;
        let list = state.run_blocking(move |service| {
            let processes = service.processes(&owner, &id)?;
            Ok(response::json(StatusCode::OK, &ProcessesBody { processes }))
        });
        list.await
    };
    state.respond(listed.await)
}

/// Sends a signal to a process.
pub async fn signal(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SignalRequest {
        signal: String,
    }
    #[derive(Serialize)]
    struct NoKeys {}
    let sent = async {
        let (head, body) = request.into_parts();
        let owner = token_name(&head.extensions);
        let (id, pid) = (workspace_id(&head.uri)?, pid_of(&head.uri));
        QueryParams::parse(&head.uri, &[])?;
        let body = state.read(&head.headers, body).await?;
        let send = state.run_blocking(move |service| {
            let SignalRequest { signal } = parse(&body)?;
            service.signal_process(&owner, &id, pid, &signal)?;
            Ok(response::json(StatusCode::OK, &NoKeys {}))
        });
        send.await
    };
    state.respond(sent.await)
}

/// Kills everything in the workspace; its files stay.
pub async fn restart(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let restarted = async {
        let (head, body) = request.into_parts();
        let (owner, id) = (token_name(&head.extensions), workspace_id(&head.uri)?);
        QueryParams::parse(&head.uri, &[])?;
        let body = state.read(&head.headers, body).await?;
        let restart = state.run_blocking(move |service| {
            #[derive(Debug, Deserialize)]
            #[serde(deny_unknown_fields)]
            struct NoKeys {}
            if !body.is_empty() {
                let NoKeys {} = parse(&body)?;
            }
            Ok(response::json(StatusCode::OK, &service.restart(&owner, &id)?))
        });
        restart.await
    };
    state.respond(restarted.await)
}

/// The process that a path names; none if it is no number.
fn pid_of(uri: &Uri) -> Option<i32> {
    let name = uri.path().strip_prefix(WORKSPACES)?.split('/').nth(2)?;
    name.parse().ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_process_by_its_number() {
        for (name, pid) in [("7", Some(7)), ("0", None), ("-1", None), ("x", None), ("", None)] {
            let uri: Uri = format!("/v1/workspaces/ws_1/processes/{name}/signal").parse().unwrap();
            assert_eq!(pid_of(&uri), pid, "{name}");
        }
    }
}
