//! Serves one client's connection.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use axum::response::Response;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, sleep_until, timeout};

use super::connection_state::ConnectionState;
use super::framing::{FramedSocket, shutdown_write};
use super::limits::HttpLimits;
use super::response_budget::ResponseBudget;
use crate::http::error::{HttpApi, HttpError};
use crate::http::metrics::counts::HttpCounts;
use crate::http::request::log::{ErrorLog, LoggedRequest};
use cofferdam_core::framing::head::HEAD_BYTES_MAX;
use cofferdam_core::sync::in_flight::InFlight;
use cofferdam_core::sync::request_id::RequestId;

/// The maximum number of header lines in a head.
const HEADERS_MAX: usize = 100;
/// How many bytes a response that is made while it is sent is assumed to hold.
const STREAM_BYTES: u64 = 2 << 20;
/// The id of a request, chosen by the client or by us, in the request and the response.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How often a client that sends more bytes while it waits is checked for a disconnect.
const LEFT_LOOK_EVERY: Duration = Duration::from_millis(100);
/// The buffer for discarding what a refused client still sends.
const LINGER_READ_BYTES: usize = 16 * 1024;

/// The connection that a request came over. Travels in the request's extensions.
#[derive(Debug, Clone)]
pub struct ClientSocket(Arc<TcpStream>);

impl ClientSocket {
    /// Duplicates the descriptor, for a thread that watches for a disconnect.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Waits until the client has closed its side or the connection is broken. Bytes sent meanwhile
    /// stay unread.
    pub async fn left(self) {
        while let Ok(1..) = self.0.peek(&mut [0]).await {
            if self.is_closed() {
                return;
            }
            // The unread bytes keep the socket readable, so a close after them wakes no task.
            sleep(LEFT_LOOK_EVERY).await;
        }
    }

    fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::from_bits_retain(libc::POLLRDHUP))];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

/// Marks a response, in its extensions, whose body is made while it is sent although its length is
/// known.
#[derive(Debug, Clone)]
pub struct LazyBody;

type Continuation =
    Box<dyn FnOnce(Arc<TcpStream>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Continues a connection in another protocol once its response, a 101, is sent. Travels in the
/// response's extensions. The connection counts among the open ones until the protocol ends.
#[derive(Clone)]
pub struct Takeover(Arc<Mutex<Option<Continuation>>>);

impl Takeover {
    /// Continues with `protocol`, which gets the socket and must end by itself.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        protocol: impl FnOnce(Arc<TcpStream>) -> F + Send + 'static,
    ) -> Self {
        let continuation: Continuation = Box::new(move |socket| Box::pin(protocol(socket)));
        Self(Arc::new(Mutex::new(Some(continuation))))
    }

    async fn continue_on(self, socket: Arc<TcpStream>) {
        let continuation = self.0.lock().ok().and_then(|mut held| held.take());
        if let Some(continuation) = continuation {
            continuation(socket).await;
        }
    }
}

/// Serves `socket` until the client leaves, a deadline passes or a request is refused.
pub async fn serve(
    socket: TcpStream,
    router: Router,
    limits: Arc<HttpLimits>,
    flight: InFlight,
    responses: ResponseBudget,
    counts: Arc<HttpCounts>,
    error_log: Arc<ErrorLog>,
) {
    // Sends small responses at once. If the kernel cannot, that only costs time.
    let _ = socket.set_nodelay(true);
    let socket = Arc::new(socket);
    let state = ConnectionState::new(Instant::now());
    let gate = FramedSocket::new(Arc::clone(&socket), state.clone());
    let taken_over = Arc::new(Mutex::new(None));
    let service = service_fn({
        let serving = ConnectionService {
            routes: TowerToHyperService::new(router),
            client: ClientSocket(Arc::clone(&socket)),
            state: state.clone(),
            flight,
            responses,
            counts,
            error_log: Arc::clone(&error_log),
            taken_over: Arc::clone(&taken_over),
        };
        move |request| serving.clone().answer(request)
    });
    let ended = {
        let connection = http1::Builder::new()
            .half_close(true)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(gate, service);
        let connection = pin!(connection);
        TimedConnection { connection, sleep: None, state, limits: &limits, error_log: &error_log }
            .await
    };
    let takeover: Option<Takeover> = taken_over.lock().ok().and_then(|mut taken| taken.take());
    if let Some(takeover) = takeover.filter(|_| ended == ConnectionEnd::ByHttp) {
        takeover.continue_on(socket).await;
    } else if ended == ConnectionEnd::ByHttp {
        // Closing with unread bytes would reset the connection before the client has read the
        // response.
        let _ = timeout(limits.linger_max, linger(&socket)).await;
    }
}

/// What serving a connection's requests needs.
#[derive(Clone)]
struct ConnectionService {
    routes: TowerToHyperService<Router>,
    client: ClientSocket,
    state: ConnectionState,
    flight: InFlight,
    responses: ResponseBudget,
    counts: Arc<HttpCounts>,
    error_log: Arc<ErrorLog>,
    /// Set by the response after which the connection speaks another protocol.
    taken_over: Arc<Mutex<Option<Takeover>>>,
}

impl ConnectionService {
    /// Answers one request under its id.
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let id = request_id(request.headers());
        id.throughout(self.answer_as(&id, request)).await
    }

    /// Answers one request, or refuses it if its framing is ambiguous.
    async fn answer_as(
        self,
        id: &RequestId,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let Self { routes, client, state, flight, responses, counts, error_log, taken_over } = self;
        let logged = LoggedRequest::of(request.method(), request.uri());
        let mut response = match state.request_began(flight.enter()) {
            Err(fault) => HttpError::Framing(fault).answer(HttpApi::of(request.uri())),
            Ok(()) => {
                request.extensions_mut().insert(client);
                routes.call(request).await?
            }
        };
        counts.answered(&response);
        error_log.record(&logged, &mut response);
        if let Ok(id) = HeaderValue::from_str(id.as_str()) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        if let (Some(takeover), Ok(mut taken)) =
            (response.extensions_mut().remove::<Takeover>(), taken_over.lock())
        {
            *taken = Some(takeover);
        }
        let in_pieces = response.extensions_mut().remove::<LazyBody>().is_some();
        let bytes = response.body().size_hint().exact().filter(|_| !in_pieces);
        state.answered(Instant::now(), bytes.is_none());
        state.answer_held(responses.enter(bytes.unwrap_or(STREAM_BYTES), state.writer()));
        Ok(if bytes.is_none() {
            let id = id.clone();
            response.map(|body| Body::new(StreamedBody { body, state, id }))
        } else {
            response
        })
    }
}

/// Returns the client's id for the request if it is valid, or a new one.
fn request_id(headers: &HeaderMap) -> RequestId {
    let mut given = headers.get_all(REQUEST_ID).iter();
    let parsed = given.next().and_then(|value| RequestId::parse(value.as_bytes()));
    // With two headers, it is unclear which one counts.
    parsed.filter(|_| given.next().is_none()).unwrap_or_else(RequestId::make)
}

/// A body that is made while it is sent. hyper drops it after taking the last frame.
struct StreamedBody {
    body: Body,
    state: ConnectionState,
    id: RequestId,
}

impl hyper::body::Body for StreamedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, id, .. } = self.get_mut();
        id.during(|| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        self.state.stream_ended();
    }
}

/// How serving a connection ended.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// hyper is done.
    ByHttp,
    /// A deadline passed, or an unread response was evicted.
    ByUs,
}

/// hyper's connection with our deadlines. hyper's `header_read_timeout` is a single timer from the
/// end of the last message, so it cannot tell an idle connection from a slow head, and hyper has
/// none for a response that is not read.
struct TimedConnection<'a, C> {
    connection: Pin<&'a mut C>,
    sleep: Option<Pin<Box<Sleep>>>,
    state: ConnectionState,
    limits: &'a HttpLimits,
    error_log: &'a ErrorLog,
}

impl<C: Future<Output = hyper::Result<()>>> Future for TimedConnection<'_, C> {
    type Output = ConnectionEnd;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let watched = self.get_mut();
        if let Poll::Ready(ended) = watched.connection.as_mut().poll(cx) {
            if let Err(error) = ended {
                watched.error_log.record_parse_error(&error);
                log::debug!("connection: {error}");
            }
            return Poll::Ready(ConnectionEnd::ByHttp);
        }
        if watched.state.is_evicted(cx.waker()) {
            return Poll::Ready(ConnectionEnd::ByUs);
        }
        let Some(due) = watched.state.due(watched.limits) else { return Poll::Pending };
        let sleep = watched.sleep.get_or_insert_with(|| Box::pin(sleep_until(due.into())));
        if sleep.deadline() != due.into() {
            sleep.as_mut().reset(due.into());
        }
        sleep.as_mut().poll(cx).map(|()| ConnectionEnd::ByUs)
    }
}

/// Discards what the client still sends until it closes its side.
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use axum::http::StatusCode;
    use axum::http::header::{CONNECTION, UPGRADE};
    use axum::routing::get;
    use tokio::net::TcpListener;

    use super::*;

    /// Answers with a 101 and sends back what arrives.
    async fn echo() -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("echo"));
        response.extensions_mut().insert(Takeover::new(async |socket: Arc<TcpStream>| {
            let mut bytes = [0; 64];
            while socket.readable().await.is_ok() {
                match socket.try_read(&mut bytes) {
                    Ok(0) => return,
                    Ok(count) => assert_eq!(socket.try_write(&bytes[..count]).unwrap(), count),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
        }));
        response
    }

    #[test]
    fn a_connection_continues_in_the_protocol_of_its_101() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = runtime.spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let router = Router::new().route("/echo", get(echo));
            let (limits, responses) = (Arc::default(), ResponseBudget::new(1 << 20));
            let (counts, log) = (Arc::default(), Arc::default());
            serve(socket, router, limits, InFlight::default(), responses, counts, log).await;
        });
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        client.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
        for text in [&b"not HTTP\x00"[..], b"GET / HTTP/1.1\r\n\r\n"] {
            client.write_all(text).unwrap();
            let mut back = vec![0; text.len()];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, text);
        }
        drop(client);
        runtime
            .block_on(async { timeout(Duration::from_secs(30), serving).await })
            .unwrap()
            .unwrap();
    }
}
