//! A server over TLS with an authority of its own, which answers over HTTP/1.1 and HTTP/2.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, channel};
use tokio_rustls::TlsAcceptor;

use crate::origin::make_certificates;

/// Its name, which no resolver knows.
pub const HOST_NAME: &str = "api.clients.test";
/// The maximum number of pieces of a body that wait to be sent.
pub const PIECES_WAITING_MAX: usize = 1;

/// An answer of the server.
pub type HostAnswer = Response<FedBody>;
/// Answers a request, whose body has been read. May block.
type Respond = dyn Fn(&Request<Bytes>) -> HostAnswer + Send + Sync;

/// A body whose pieces are sent as they come.
pub struct FedBody(pub Receiver<Bytes>);

impl Body for FedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// An answer whose body is known.
pub fn answer_of(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> HostAnswer {
    let (sender, pieces) = channel(PIECES_WAITING_MAX);
    sender.try_send(body.into()).unwrap();
    Response::builder().status(status).header("content-type", kind).body(FedBody(pieces)).unwrap()
}

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    pub path: String,
    pub version: Version,
    pub headers: HeaderMap,
}

struct Answering {
    respond: Box<Respond>,
    seen: Mutex<Vec<SeenRequest>>,
}

/// The server, which ends with this value.
pub struct ClientsHost {
    pub port: u16,
    directory: TempDir,
    answering: Arc<Answering>,
    _runtime: Runtime,
}

impl ClientsHost {
    /// Starts one that speaks these protocols.
    pub fn start(
        protocols: &[&str],
        respond: impl Fn(&Request<Bytes>) -> HostAnswer + Send + Sync + 'static,
    ) -> Self {
        let directory = TempDir::new().unwrap();
        make_certificates(directory.path(), &[HOST_NAME]);
        let acceptor = TlsAcceptor::from(Arc::new(config(&directory, protocols)));
        let answering = Arc::new(Answering { respond: Box::new(respond), seen: Mutex::default() });
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::clone(&answering);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, acceptor.clone(), Arc::clone(&shared)));
            }
        });
        Self { port, directory, answering, _runtime: runtime }
    }

    /// The file with the certificate of its authority.
    pub fn certificate_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// What it was asked for so far.
    pub fn seen(&self) -> Vec<SeenRequest> {
        self.answering.seen.lock().unwrap().clone()
    }
}

fn config(directory: &TempDir, protocols: &[&str]) -> ServerConfig {
    let file = |name: &str| directory.path().join(name);
    let certificate = CertificateDer::from_pem_file(file("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, answering: Arc<Answering>) {
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| answer(Arc::clone(&answering), request));
    let stream = TokioIo::new(stream);
    // The other side may leave at any time.
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).await,
    };
}

async fn answer(
    answering: Arc<Answering>,
    request: Request<Incoming>,
) -> Result<HostAnswer, hyper::Error> {
    let (head, body) = request.into_parts();
    answering.seen.lock().unwrap().push(SeenRequest {
        path: head.uri.path().to_owned(),
        version: head.version,
        headers: head.headers.clone(),
    });
    let request = Request::from_parts(head, body.collect().await?.to_bytes());
    let answered = tokio::task::spawn_blocking(move || (answering.respond)(&request)).await;
    Ok(answered.unwrap_or_else(|error| {
        answer_of(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string())
    }))
}
