//! The bodies of the proxy's answers.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::task::AbortHandle;

use crate::egress::log::OpenRecord;
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// Why a body ended early.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// Ends the task of a connection to a host when the answer needs it no longer.
#[derive(Debug)]
pub struct ConnectionTask(pub AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of an answer.
#[derive(Debug)]
pub enum ProxyBody {
    /// Of the proxy itself.
    Text(Full<Bytes>),
    /// Of the host.
    Streamed { body: Incoming, record: Arc<OpenRecord>, _task: ConnectionTask },
    /// Of a host with rules.
    Ruled(UnsyncBoxBody<Bytes, BodyError>),
}

impl ProxyBody {
    pub fn text(text: Bytes) -> Self {
        Self::Text(Full::new(text))
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Text(text) => {
                let frame = ready!(Pin::new(text).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|never: Infallible| match never {})))
            }
            Self::Streamed { body, record, .. } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if let Some(Err(_)) = &frame {
                    record.refused(EgressDecision::Cut, EgressReason::Connect);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            Self::Ruled(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_end_stream(),
            Self::Streamed { body, .. } => body.is_end_stream(),
            Self::Ruled(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => text.size_hint(),
            Self::Streamed { body, .. } => body.size_hint(),
            Self::Ruled(body) => body.size_hint(),
        }
    }
}
