//! One client's connection, from its accept to its last byte.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use axum::{Router, http::Request};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until, timeout};

use super::counts::FrontCounts;
use super::exchange::Exchange;
use super::head::HEAD_BYTES_MAX;
use super::in_flight::InFlight;
use super::limits::HttpLimits;
use super::message_gate::{MessageGate, shutdown_write};
use super::reply::Refusal;
use super::unread::UnreadAnswers;

/// The most header lines in a head.
const HEADERS_MAX: usize = 100;
/// What an answer that is made while it is sent may hold, about, in bytes.
const STREAM_BYTES: u64 = 2 << 20;
/// How much of what a refused client still sends is thrown away at a time.
const LINGER_READ_BYTES: usize = 16 * 1024;

/// The connection a request came over, among the request's extensions.
#[derive(Debug, Clone)]
pub struct ClientSocket(Arc<TcpStream>);

impl ClientSocket {
    /// A descriptor of the same socket, for whoever watches the client leave.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }
}

/// Serves `socket` until the client has left, or a deadline or a refusal ends it.
pub async fn serve(
    socket: TcpStream,
    router: Router,
    limits: Arc<HttpLimits>,
    flight: InFlight,
    unread: UnreadAnswers,
    counts: Arc<FrontCounts>,
) {
    // Small answers go out at once; a kernel that cannot do it costs only time.
    let _ = socket.set_nodelay(true);
    let socket = Arc::new(socket);
    let exchange = Exchange::new(Instant::now());
    let gate = MessageGate::new(Arc::clone(&socket), exchange.clone());
    let service = service_fn({
        let serving = Serving {
            routes: TowerToHyperService::new(router),
            client: ClientSocket(Arc::clone(&socket)),
            exchange: exchange.clone(),
            flight,
            unread,
            counts,
        };
        move |request| serving.clone().answer(request)
    });
    let ended = {
        let connection = http1::Builder::new()
            .half_close(true)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(gate, service);
        Watched { connection: pin!(connection), sleep: None, exchange, limits: &limits }.await
    };
    if ended == Ended::ByHttp {
        // Closing over unread bytes would reset the connection under the answer.
        let _ = timeout(limits.linger_max, linger(&socket)).await;
    }
}

/// What answering a connection's requests takes.
#[derive(Clone)]
struct Serving {
    routes: TowerToHyperService<Router>,
    client: ClientSocket,
    exchange: Exchange,
    flight: InFlight,
    unread: UnreadAnswers,
    counts: Arc<FrontCounts>,
}

impl Serving {
    /// Answers one request, or refuses one whose framing is doubtful.
    async fn answer(self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let Self { routes, client, exchange, flight, unread, counts } = self;
        let response = match exchange.request_began(flight.enter()) {
            Err(fault) => Refusal::Framing(fault).into_response(),
            Ok(()) => {
                request.extensions_mut().insert(client);
                routes.call(request).await?
            }
        };
        counts.answered(&response);
        let bytes = response.body().size_hint().exact();
        exchange.answered(Instant::now(), bytes.is_none());
        exchange.answer_held(unread.enter(bytes.unwrap_or(STREAM_BYTES), &exchange));
        Ok(if bytes.is_none() {
            response.map(|body| Body::new(Streamed { body, exchange }))
        } else {
            response
        })
    }
}

/// A body that is made while it is sent. hyper drops it once it has taken the last of it.
struct Streamed {
    body: Body,
    exchange: Exchange,
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.exchange.stream_ended();
    }
}

/// How a connection's service came to its end.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// hyper is done with it.
    ByHttp,
    /// The client let a deadline pass, or its unread answer had to make room.
    ByUs,
}

/// hyper's connection with our deadlines around it.
struct Watched<'a, C> {
    connection: Pin<&'a mut C>,
    sleep: Option<Pin<Box<Sleep>>>,
    exchange: Exchange,
    limits: &'a HttpLimits,
}

impl<C: Future<Output = hyper::Result<()>>> Future for Watched<'_, C> {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let watched = self.get_mut();
        if let Poll::Ready(ended) = watched.connection.as_mut().poll(cx) {
            if let Err(error) = ended {
                log::debug!("connection: {error}");
            }
            return Poll::Ready(Ended::ByHttp);
        }
        if watched.exchange.is_given_up(cx.waker()) {
            return Poll::Ready(Ended::ByUs);
        }
        let Some(due) = watched.exchange.due(watched.limits) else { return Poll::Pending };
        let sleep = watched.sleep.get_or_insert_with(|| Box::pin(sleep_until(due.into())));
        if sleep.deadline() != due.into() {
            sleep.as_mut().reset(due.into());
        }
        sleep.as_mut().poll(cx).map(|()| Ended::ByUs)
    }
}

/// Throws away what the client still sends until it closes its side.
async fn linger(socket: &TcpStream) {
    if shutdown_write(socket).is_err() {
        return;
    }
    let mut scrap = vec![0; LINGER_READ_BYTES];
    while socket.readable().await.is_ok() {
        match socket.try_read(&mut scrap) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
