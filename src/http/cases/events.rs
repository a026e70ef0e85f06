//! `GET /v1/cases/{id}/events`: what a run does, as server-sent events.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;

use super::path::run_id;
use super::state::{CasesState, respond};
use crate::case::service::CaseRunEvents;
use crate::http::error::HttpError;
use crate::http::jobs::state::acquire;
use crate::http::request::access::token_name;
use crate::http::response::event_body::event_stream;
use crate::http::response::recorded_events::{RecordedEvents, last_event_id};
use crate::http::server::connection::ClientSocket;

/// Follows a run to its end.
pub async fn events(
    State(state): State<Arc<CasesState>>,
    Extension(client): Extension<ClientSocket>,
    request: Request,
) -> Response {
    respond(follow(&state, client, &request.into_parts().0).await)
}

async fn follow(
    state: &CasesState,
    client: ClientSocket,
    head: &Parts,
) -> Result<Response, HttpError> {
    let permit = acquire(&state.streams, "event streams")?;
    let (owner, id) = (token_name(&head.extensions), run_id(&head.uri));
    let followed = state.run_blocking(move |all| Ok(all.events(owner.as_str(), &id)?)).await?;
    let CaseRunEvents { file, progress } = followed;
    let after = last_event_id(&head.headers);
    let events =
        RecordedEvents::new("a run of a Case", (file, progress), after, state.ping_every, permit);
    Ok(event_stream(events, client))
}
