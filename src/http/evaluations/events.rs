//! `GET /evaluate/{id}/events`: what an evaluation does, as server-sent events.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

use super::path::{EVALUATION_PREFIX, id_behind};
use super::state::{EvaluationsState, respond};
use crate::evaluation::service::EvaluationEvents;
use crate::http::error::HttpError;
use crate::http::jobs::state::acquire;
use crate::http::request::access::token_name;
use crate::http::response::event_body::event_stream;
use crate::http::response::recorded_events::{RecordedEvents, last_event_id};
use crate::http::server::connection::ClientSocket;

/// Follows an evaluation to its end.
pub async fn events(
    State(state): State<Arc<EvaluationsState>>,
    Extension(client): Extension<ClientSocket>,
    request: Request,
) -> Response {
    respond(follow(&state, client, &request.into_parts().0).await)
}

async fn follow(
    state: &Arc<EvaluationsState>,
    client: ClientSocket,
    head: &axum::http::request::Parts,
) -> Result<Response, HttpError> {
    let permit = acquire(&state.streams, "event streams")?;
    let (owner, id) = (token_name(&head.extensions), id_behind(&head.uri, EVALUATION_PREFIX));
    let followed = state.run_blocking(move |all| all.events(owner.as_str(), &id)).await?;
    let EvaluationEvents { file, progress } = followed;
    let after = last_event_id(&head.headers);
    let events =
        RecordedEvents::new("an evaluation", (file, progress), after, state.ping_every, permit);
    Ok(event_stream(events, client))
}
