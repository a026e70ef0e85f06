//! The attacks. Each returns the connections that it keeps open.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use cofferdam_fixtures::smuggling::{DOUBTFUL_CODINGS, DOUBTFUL_LENGTHS};
use cofferdam_test_server::client::{Client, post, request, solution};
use cofferdam_test_server::host::{in_turn, threads_and_descriptors};
use cofferdam_test_server::service::Service;
use nix::sys::socket::{setsockopt, sockopt::Linger};

use super::usage::Held;

const SLOW_HEAD: &str = "GET /health HTTP/1.1\r\nx: ";
const SLOW_BODY: &str = "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";

/// Opens `connections` connections that send `bytes` and then wait.
fn holding(service: &Service, connections: usize, bytes: &str) -> Vec<Client> {
    (0..connections)
        .map(|_| {
            let mut client = service.connect();
            client.send(bytes);
            client
        })
        .collect()
}

pub fn slow_heads(service: &Service) -> Held {
    Box::new(holding(service, 200, SLOW_HEAD))
}

pub fn slow_bodies(service: &Service) -> Held {
    Box::new(holding(service, 200, SLOW_BODY))
}

/// Sends bodies without their last byte. Does not read refusals.
pub fn unfinished_bodies(service: &Service) -> Held {
    const BODY_BYTES: usize = 1 << 20;
    let head = format!("POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    let body = vec![b' '; BODY_BYTES - 1];
    let held = Mutex::new(Vec::new());
    in_turn(1, 1000, |number| {
        let socket = pour(service, &head, &body, BODY_BYTES - 1);
        held.lock().unwrap().push(socket);
        if number % 100 == 0 {
            // Small requests of others always succeed; a large one may have to be repeated.
            assert_eq!(service.run("echo right").stdout(), "right\n");
        }
    });
    Box::new(held)
}

pub fn slow_beside_runs(service: &Service) -> Held {
    let live: Vec<Client> = (0..8).map(|_| service.live("sleep 60")).collect();
    Box::new((live, holding(service, 200, SLOW_HEAD), holding(service, 200, SLOW_BODY)))
}

/// More clients than free descriptors.
pub fn exhaustion(service: &Service) -> Held {
    let limit = |descriptors: usize| {
        let (pid, limit) = (service.pid().to_string(), format!("--nofile={descriptors}:4096"));
        let set = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
        assert!(set.success(), "prlimit: {set}");
    };
    let (_, open) = threads_and_descriptors(service.pid());
    limit(open + 8);
    let held = holding(service, 60, SLOW_HEAD);
    service.log.wait_for("accept: ");
    thread::sleep(Duration::from_millis(300));
    // Runs after the attack need descriptors again; another test checks the recovery.
    limit(4096);
    Box::new(held)
}

/// Sends `piece` until `bytes` are sent or the server refuses more.
fn pour(service: &Service, head: &str, piece: &[u8], bytes: usize) -> TcpStream {
    let mut socket = TcpStream::connect(service.address).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    for _ in 0..bytes / piece.len() {
        // Refused; another test checks the answer.
        if socket.write_all(piece).is_err() {
            break;
        }
    }
    socket
}

pub fn endless_line(service: &Service) -> Held {
    let piece = vec![b'x'; 1 << 20];
    Box::new(pour(service, SLOW_HEAD, &piece, 200_000_000))
}

pub fn many_headers(service: &Service) -> Held {
    let headers: String = (0..100_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let pour = |head| pour(service, head, headers.as_bytes(), headers.len());
    Box::new((pour("GET /health HTTP/1.1\r\n"), pour("POST /run HTTP/1.1\r\n")))
}

/// Everything the server sends until it closes or resets the connection.
fn answers(mut socket: TcpStream) -> String {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answers = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(bytes @ 1..) = socket.read(&mut piece) {
        answers.extend_from_slice(&piece[..bytes]);
    }
    String::from_utf8_lossy(&answers).into_owned()
}

/// Sends a request with ambiguous framing and another one behind it; asserts that only a refusal
/// comes back.
fn assert_refused(service: &Service, headers: &str, body: &str) {
    let headers = headers.replace("LEN", &body.len().to_string());
    let head = format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}\r\n{body}");
    let hidden = post("", solution("echo hidden").to_string());
    let socket = pour(service, &head, &hidden, hidden.len());
    let answers = answers(socket);
    assert!(answers.starts_with("HTTP/1.1 400 "), "{headers:?} was answered {answers:?}");
    assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{headers:?}: {answers:?}");
    assert!(!answers.contains("hidden"), "{headers:?} ran: {answers:?}");
}

pub fn doubtful_framing(service: &Service) -> Held {
    let body = solution("echo direct").to_string();
    for _ in 0..10 {
        for headers in DOUBTFUL_LENGTHS {
            assert_refused(service, headers, &body);
        }
    }
    Box::new(())
}

pub fn hidden_requests(service: &Service) -> Held {
    let body = solution("echo direct").to_string();
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for _ in 0..10 {
        for headers in DOUBTFUL_CODINGS {
            assert_refused(service, headers, &chunked);
        }
    }
    Box::new(())
}

pub fn cut_bodies(service: &Service) -> Held {
    let whole = post("", solution("echo cut").to_string());
    let held: Vec<TcpStream> = (0..200)
        .map(|_| {
            let socket = pour(service, "", &whole[..whole.len() - 1], whole.len() - 1);
            socket.shutdown(Shutdown::Write).unwrap();
            socket
        })
        .collect();
    for socket in held {
        let answers = answers(socket);
        assert!(answers.is_empty() || answers.starts_with("HTTP/1.1 400 "), "{answers:?}");
    }
    Box::new(())
}

/// Requests answers of the largest possible size: each zero byte takes six bytes in JSON.
pub fn unread_answers(service: &Service) -> Held {
    let script = "head -c 1048576 /dev/zero; head -c 1048576 /dev/zero >&2";
    let request = post("", solution(script).to_string());
    let mut held = Vec::new();
    for _ in 0..10 {
        let asked: Vec<Client> = (0..6)
            .map(|_| {
                let mut client = service.connect();
                client.send(&request);
                client
            })
            .collect();
        for mut client in asked {
            // Reads only the head, so the answer is in flight and stalls.
            client.wait_for("HTTP/1.1 ");
            held.push(client);
        }
    }
    Box::new(held)
}

pub fn resets(service: &Service) -> Held {
    let reset = libc::linger { l_onoff: 1, l_linger: 0 };
    for number in 0..2000 {
        let mut socket = TcpStream::connect(service.address).unwrap();
        if number % 2 == 0 {
            socket.write_all(request("GET", "/health", "").as_bytes()).unwrap();
        }
        setsockopt(&socket, Linger, &reset).unwrap();
    }
    Box::new(())
}

/// Requests many times more answers than the socket buffers hold and reads none.
pub fn pipelined_flood(service: &Service) -> Held {
    let piece = request("GET", "/health", "").repeat(1000);
    let flood = || {
        let mut socket = TcpStream::connect(service.address).unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        // The server stops reading requests while its answers are unread.
        while socket.write_all(piece.as_bytes()).is_ok() {}
        socket
    };
    let floods = || (0..20).map(|_| flood).collect::<Vec<_>>();
    Box::new(thread::scope(|scope| {
        let threads: Vec<_> = floods().into_iter().map(|flood| scope.spawn(flood)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<TcpStream>>()
    }))
}

pub fn chunk_extensions(service: &Service) -> Held {
    let head = "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let extended = format!("1;{}\r\nx\r\n", "e".repeat(4000)).repeat(100);
    let endless = vec![b'e'; 1 << 20];
    Box::new((
        pour(service, head, extended.as_bytes(), 50_000_000),
        pour(service, &format!("{head}1;"), &endless, 50_000_000),
        pour(service, &format!("{head}0\r\n"), b"x-trailer: y\r\n", 1_000_000),
    ))
}

/// Sends compressed bodies, which the server must refuse without decompressing them.
pub fn compressed_bodies(service: &Service) -> Held {
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..20 {
        let head = "POST /run HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\n\
                    content-length: 1000000\r\n\r\n";
        let socket = pour(service, head, &piece[..1_000_000], 1_000_000);
        socket.shutdown(Shutdown::Write).unwrap();
        let answers = answers(socket);
        assert!(answers.starts_with("HTTP/1.1 415 "), "{answers:?}");
    }
    Box::new(())
}

pub fn expect_storm(service: &Service) -> Held {
    let expecting = |length: usize| {
        format!(
            "POST /run HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let mut waiting = holding(service, 200, &expecting(100));
    for client in &mut waiting {
        assert_eq!(client.head().status, 100);
    }
    for mut client in holding(service, 200, &expecting(1 << 30)) {
        assert_eq!(client.head().status, 413);
    }
    Box::new(waiting)
}
