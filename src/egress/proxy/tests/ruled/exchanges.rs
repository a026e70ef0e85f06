//! Bodies, versions of HTTP and WebSockets between a program and a host with rules.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use axum::http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::runtime::Builder;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::scene::{HostAuthority, RuledScene, rest};
use crate::egress::proxy::tests::scene::read_message;
use cofferdam_core::egress::EgressReason;

/// A host that speaks HTTP/2 and answers each request with its body behind what it saw of it.
fn http2_host(authority: &HostAuthority) -> (u16, Receiver<(String, Version)>) {
    let config = authority.config(&["a.test"], &["h2"]);
    let (sender, requests) = channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (config, sender) = (Arc::clone(&config), sender.clone());
                tokio::spawn(async move {
                    let stream = TlsAcceptor::from(config).accept(socket).await.unwrap();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let sender = sender.clone();
                        async move {
                            let _ = sender.send((request.uri().to_string(), request.version()));
                            let body = request.into_body().collect().await?.to_bytes();
                            Ok::<_, hyper::Error>(Response::new(Full::new(body)))
                        }
                    });
                    let builder = server::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
    });
    (port, requests)
}

/// What a program does that speaks HTTP/2 to `a.test`: sends `requests` at once and reads the answers.
fn over_http2(
    scene: &RuledScene,
    port: u16,
    requests: Vec<Request<Full<Bytes>>>,
) -> Vec<(u16, String)> {
    let mut client = scene.scene.connect();
    client.tunnel("a.test", port);
    client.0.set_read_timeout(None).unwrap();
    client.0.set_nonblocking(true).unwrap();
    let config = scene.client_config(&["h2"]);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let socket = tokio::net::TcpStream::from_std(client.0).unwrap();
        let name = ServerName::try_from("a.test").unwrap();
        let stream = TlsConnector::from(config).connect(name, socket).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let sent: Vec<_> = requests
            .into_iter()
            .map(|request| {
                let mut sender = sender.clone();
                tokio::spawn(async move {
                    let response = sender.send_request(request).await.unwrap();
                    let status = response.status().as_u16();
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    (status, String::from_utf8_lossy(&body).into_owned())
                })
            })
            .collect();
        let mut answers = Vec::new();
        for one in sent {
            answers.push(one.await.unwrap());
        }
        answers
    })
}

fn request(uri: String, body: &str) -> Request<Full<Bytes>> {
    Request::post(uri).body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

#[test]
fn each_version_of_http_reaches_each_other_one() {
    let authority = HostAuthority::new();
    let (second, seen) = http2_host(&authority);
    let (first, requests) = authority.answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    let rules =
        json!({"rules": {format!("a.test:{first}"): [{}], format!("a.test:{second}"): [{}]}});
    let scene = RuledScene::new(&authority, rules);
    // From 1.1 to 2.
    let post = "POST /a?b HTTP/1.1\r\nconnection: close\r\ncontent-length: 3\r\n";
    let answer = scene.ask(second, format!("{post}host: a.test:{second}\r\n\r\nabc"));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("abc"), "{answer}");
    assert_eq!(seen.recv().unwrap(), (format!("https://a.test:{second}/a?b"), Version::HTTP_2));
    // From 2 to 2, several at once, and from 2 to 1.1.
    let to = |port: u16, path: &str| request(format!("https://a.test:{port}{path}"), path);
    let many = (0..20).map(|number| to(second, &format!("/{number}"))).collect();
    for (number, answer) in over_http2(&scene, second, many).into_iter().enumerate() {
        assert_eq!(answer, (200, format!("/{number}")));
    }
    let answers = over_http2(&scene, first, vec![to(first, "/x"), to(first, "/y")]);
    assert_eq!(answers, vec![(200, "hi".to_owned()); 2]);
    let request = requests.recv().unwrap();
    assert!(request.starts_with("POST /") && request.contains(" HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: a.test:{first}\r\n")), "{request}");
}

#[test]
fn each_stream_is_judged_and_names_the_host_of_its_connection() {
    let authority = HostAuthority::new();
    let (port, seen) = http2_host(&authority);
    let rules = json!({"rules": {
        format!("a.test:{port}"): [{"path": "/ok"}],
        format!("b.test:{port}"): [{}],
    }});
    let mut scene = RuledScene::new(&authority, rules);
    let answers = over_http2(
        &scene,
        port,
        vec![
            request(format!("https://a.test:{port}/ok"), "x"),
            request(format!("https://a.test:{port}/no"), "x"),
            request(format!("https://b.test:{port}/ok"), "x"),
            request("https://a.test/ok".to_owned(), "x"),
            request(format!("http://a.test:{port}/ok"), "x"),
        ],
    );
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 403, 421, 421, 400], "{answers:?}");
    assert!(answers[2].1.contains("egress.host_mismatch"), "{answers:?}");
    assert_eq!(seen.try_iter().count(), 1);
    let mut verdicts = scene.verdicts();
    verdicts.sort_unstable();
    let mismatch = "denied host_mismatch -";
    let expected = ["allowed - 0", "denied bad_request -", mismatch, mismatch, "denied no_rule -"];
    assert_eq!(verdicts, expected);
}

#[test]
fn a_line_of_an_event_stream_passes_at_once() {
    let authority = HostAuthority::new();
    let (release, released) = channel::<()>();
    let released = std::sync::Mutex::new(released);
    let port = authority.host(move |mut stream| {
        read_message(&mut stream);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        while released.lock().unwrap().recv().is_ok() {
            let sent = stream.write_all(b"data: line\n\n").and_then(|()| stream.flush());
            if sent.is_err() {
                break;
            }
        }
    });
    let object = super::scene::with_secret(port);
    let scene = RuledScene::new(&authority, object);
    let mut stream = scene.open(port);
    let head = format!("GET /added HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = String::new();
    let mut slowest = Duration::ZERO;
    for line in 1..=5 {
        let began = Instant::now();
        release.send(()).unwrap();
        let mut piece = [0; 512];
        while seen.matches("data: line\n\n").count() < line {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "{seen}");
            seen.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        }
        slowest = slowest.max(began.elapsed());
    }
    // Each line came although no other followed. How fast that is, the bench says.
    assert!(slowest < Duration::from_secs(20), "{slowest:?}");
}

#[test]
fn an_early_answer_reaches_a_program_that_still_sends() {
    let authority = HostAuthority::new();
    let port = authority.host(|mut stream| {
        let mut byte = [0; 1024];
        let _ = stream.read(&mut byte);
        let _ = stream
            .write_all(b"HTTP/1.1 413 no\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmuch");
        let _ = stream.flush();
        rest(&mut stream);
    });
    let scene = RuledScene::new(&authority, json!({"rules": {format!("a.test:{port}"): [{}]}}));
    let mut stream = scene.open(port);
    let head =
        format!("POST / HTTP/1.1\r\nhost: a.test:{port}\r\ncontent-length: 100000\r\n\r\nbegin");
    stream.write_all(head.as_bytes()).unwrap();
    stream.flush().unwrap();
    let answer = read_message(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("much"), "{answer}");
}

#[test]
fn a_program_that_waits_for_100_is_told_to_go_on() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    let scene = RuledScene::new(&authority, json!({"rules": {format!("a.test:{port}"): [{}]}}));
    let mut stream = scene.open(port);
    let head = format!(
        "POST / HTTP/1.1\r\nhost: a.test:{port}\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let interim = read_message(&mut stream);
    assert!(interim.starts_with("HTTP/1.1 100 "), "{interim}");
    stream.write_all(b"body").unwrap();
    let answer = read_message(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hi"), "{answer}");
    assert!(requests.recv().unwrap().ends_with("body"));
}

#[test]
fn trailers_pass_both_ways() {
    let authority = HostAuthority::new();
    let reply = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                 2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n";
    let (port, requests) = authority.answering(reply);
    let scene = RuledScene::new(&authority, json!({"rules": {format!("a.test:{port}"): [{}]}}));
    let answer = scene.ask(
        port,
        format!(
            "POST / HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: close, te\r\nte: trailers\r\n\
             trailer: x-own\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-own: 2\r\n\r\n"
        ),
    );
    assert!(answer.contains("x-sum: 1"), "{answer}");
    let request = requests.recv().unwrap();
    assert!(request.contains("te: trailers") && request.contains("abc"), "{request}");
    assert!(request.contains("x-own: 2"), "{request}");
}

/// A host that agrees to every WebSocket and answers what it gets with the same.
fn echo(authority: &HostAuthority) -> u16 {
    authority.host(|mut stream| {
        read_message(&mut stream);
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\
                    upgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut piece = [0; 512];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            if stream.write_all(&piece[..count]).and_then(|()| stream.flush()).is_err() {
                break;
            }
        }
    })
}

#[test]
fn a_websocket_passes_where_the_rule_says_so_alone() {
    let authority = HostAuthority::new();
    let port = echo(&authority);
    let rules =
        json!({"rules": {format!("a.test:{port}"): [{"path": "/ws", "websocket": true}, {}]}});
    let mut scene = RuledScene::new(&authority, rules);
    let head = |path: &str, more: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: Upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n{more}\r\n"
        )
    };
    let mut stream = scene.open(port);
    // A frame right behind the head is one too.
    stream.write_all((head("/ws", "") + "GET /first HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let answer = read_message(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("upgrade: websocket"), "{answer}");
    let first = b"GET /first HTTP/1.1\r\n\r\n";
    let mut back = vec![0; first.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, first);
    stream.write_all(b"\x81\x02hi").unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"\x81\x02hi");
    drop(stream);
    for request in [
        head("/other", ""),
        head("/ws", "content-length: 2\r\n") + "hi",
        head("/ws", "").replace("GET", "POST"),
    ] {
        let answer = scene.ask(port, &request);
        let is_refused = answer.contains("egress.websocket") || answer.contains("bad_request");
        assert!(is_refused, "{request}: {answer}");
    }
    let records = scene.scene.records();
    assert_eq!((records[0].status, records[0].reason), (Some(101), None));
    assert!(records[0].bytes_received > 4, "{records:?}");
    assert_eq!(records[1].reason, Some(EgressReason::Websocket));
}

#[test]
fn requests_for_http_follow_rules_too() {
    let authority = HostAuthority::new();
    let (port, requests) = crate::egress::proxy::tests::scene::http_host(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
    );
    let rules = json!({"rules": {format!("a.test:{port}"): [
        {"plain": true, "methods": ["GET"], "headers": {"x-added": "1"}}
    ]}});
    let mut scene = RuledScene::new(&authority, rules);
    let target = format!("http://a.test:{port}/x?y");
    let ask = |method: &str| {
        scene.scene.ask(format!(
            "{method} {target} HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: close\r\n\r\n"
        ))
    };
    let answer = ask("GET");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hi"), "{answer}");
    let request = requests.recv().unwrap();
    assert!(request.starts_with("GET /x?y HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("x-added: 1\r\n"), "{request}");
    assert!(ask("DELETE").contains("egress.no_rule"));
    // Not through a tunnel.
    let tunnel = format!("CONNECT a.test:{port} HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n");
    assert!(scene.scene.ask(tunnel).contains("egress.no_rule"));
    assert_eq!(scene.verdicts(), ["allowed - 0", "denied no_rule -", "denied no_rule -"]);
}

#[test]
fn closing_a_proxy_ends_its_requests_and_leaves_no_task() {
    let authority = HostAuthority::new();
    let port = authority.host(|mut stream| {
        read_message(&mut stream);
        rest(&mut stream);
    });
    let mut scene = RuledScene::new(&authority, json!({"rules": {format!("a.test:{port}"): [{}]}}));
    let mut stream = scene.open(port);
    let head = format!("GET / HTTP/1.1\r\nhost: a.test:{port}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.flush().unwrap();
    scene.scene.await_records(1);
    let began = Instant::now();
    scene.scene.records();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(Arc::strong_count(&scene.scene.log), 1);
    rest(&mut stream);
}
