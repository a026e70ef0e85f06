//! The body of a host's answer on its way to the program.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::HeaderMap;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::meter::{ByteLimitReached, ByteMeter};
use super::pool::UsedConnection;
use crate::egress::proxy::body::BodyError;
use crate::egress::secret::{RedactStream, SecretSearch};
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// What finds secrets in a body.
#[derive(Debug)]
pub struct BodySearch {
    search: Arc<SecretSearch>,
    stream: RedactStream,
}

impl BodySearch {
    pub fn new(search: Arc<SecretSearch>) -> Self {
        Self { stream: RedactStream::new(Arc::clone(&search)), search }
    }
}

/// The body of an answer, passed on as it comes, without the secrets that were sent.
#[derive(Debug)]
pub struct AnswerBody {
    body: Incoming,
    meter: ByteMeter,
    search: Option<BodySearch>,
    /// Trailers that follow what was held back.
    trailers: Option<HeaderMap>,
    /// Why the body ends before its end. Told once what came before is on its way.
    failure: Option<BodyError>,
    has_ended: bool,
    connection: Option<UsedConnection>,
    /// The request's place among those at once.
    _permit: OwnedSemaphorePermit,
}

impl AnswerBody {
    pub fn new(
        body: Incoming,
        meter: ByteMeter,
        search: Option<BodySearch>,
        connection: UsedConnection,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            body,
            meter,
            search,
            trailers: None,
            failure: None,
            has_ended: false,
            connection: Some(connection),
            _permit: permit,
        }
    }

    /// What was held back of the body.
    fn held_back(&mut self) -> Option<Bytes> {
        let rest = self.search.as_mut().map(|search| search.stream.finish());
        rest.filter(|rest| !rest.is_empty()).map(Bytes::from)
    }

    /// The body is over.
    fn end(&mut self) -> Option<Frame<Bytes>> {
        self.has_ended = true;
        if let Some(connection) = self.connection.take() {
            connection.give_back();
        }
        self.held_back().map(Frame::data)
    }

    /// Returns what is passed on of `frame`; none if all of it is held back.
    fn pass(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let mut data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return frame.into_trailers().ok().map(|all| self.pass_trailers(all)),
        };
        let within = self.meter.pass(data.len());
        if within < data.len() {
            data.truncate(within);
            self.failure = Some(ByteLimitReached.into());
        }
        if let Some(search) = &mut self.search {
            data = search.stream.push_bytes(data);
        }
        (!data.is_empty()).then(|| Frame::data(data))
    }

    fn pass_trailers(&mut self, mut trailers: HeaderMap) -> Frame<Bytes> {
        if let Some(search) = &self.search {
            search.search.redact_headers(&mut trailers);
        }
        match self.held_back() {
            Some(rest) => {
                self.trailers = Some(trailers);
                Frame::data(rest)
            }
            None => Frame::trailers(trailers),
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let answer = self.get_mut();
        loop {
            if let Some(trailers) = answer.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if answer.has_ended {
                return Poll::Ready(answer.failure.take().map(Err));
            }
            if answer.failure.is_some() {
                answer.has_ended = true;
                // Meanwhile what was passed on is sent.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match ready!(Pin::new(&mut answer.body).poll_frame(cx)) {
                None => return Poll::Ready(answer.end().map(Ok)),
                Some(Err(error)) => {
                    answer.failure = Some(error.into());
                    answer.meter.record().refused(EgressDecision::Cut, EgressReason::Connect);
                }
                Some(Ok(frame)) => {
                    if let Some(frame) = answer.pass(frame) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let holds_nothing = self.search.is_none() && self.trailers.is_none();
        let is_over = self.has_ended || holds_nothing && self.body.is_end_stream();
        is_over && self.failure.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.search {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // An answer without a body is not read.
        if self.body.is_end_stream()
            && let Some(connection) = self.connection.take()
        {
            connection.give_back();
        }
    }
}
