//! The body of a request on its way to a host.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use super::meter::{ByteMeter, ExchangeEnd};
use crate::egress::proxy::body::BodyError;
use crate::egress::rules::NetworkRules;
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// The body of a request, passed on as it comes.
#[derive(Debug)]
pub struct SentBody {
    body: Incoming,
    meter: ByteMeter,
    rules: Arc<NetworkRules>,
}

/// The program sent what cannot be passed on.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the trailers hold a placeholder")]
struct PlaceholderInTrailers;

impl SentBody {
    pub fn new(body: Incoming, meter: ByteMeter, rules: Arc<NetworkRules>) -> Self {
        Self { body, meter, rules }
    }

    /// Why it ended early, if it did.
    pub fn end(&self) -> ExchangeEnd {
        self.meter.end()
    }

    fn check(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyError> {
        if let Some(data) = frame.data_ref() {
            self.meter.pass_all(data.len())?;
        }
        if let Some(trailers) = frame.trailers_ref()
            && self.rules.holds_placeholder("", trailers)
        {
            self.meter.end().note(EgressReason::SecretHost);
            self.meter.record().refused(EgressDecision::Denied, EgressReason::SecretHost);
            return Err(PlaceholderInTrailers.into());
        }
        Ok(())
    }
}

/// Whether a body ended since its bytes are malformed, and not since the program has gone.
fn is_malformed(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
            );
        }
        source = cause.source();
    }
    false
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let sent = self.get_mut();
        let frame = ready!(Pin::new(&mut sent.body).poll_frame(cx));
        Poll::Ready(match frame {
            None => None,
            Some(Err(error)) => {
                if is_malformed(&error) {
                    sent.meter.end().note(EgressReason::BadRequest);
                }
                Some(Err(error.into()))
            }
            Some(Ok(frame)) => Some(sent.check(&frame).map(|()| frame)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
