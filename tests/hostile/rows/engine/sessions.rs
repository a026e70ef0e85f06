//! Programs that talk, and clients that do not listen.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Message, WebSocket};

use crate::Unexercised;
use crate::engine::{EngineClient, PeakMemory, SOON, Workspace, promptly};
use crate::marker::Marker;
use crate::target::Target;

const MIB: usize = 1 << 20;
/// The most bytes of input that a program may leave unread.
const UNREAD_MIB_MAX: usize = 1;
/// The most viewers of a session.
const VIEWERS_MAX: usize = 16;
/// The output of a program that prints without end, and how much memory it may take: its last 4 MiB, once, the first
/// MiB for its result, and buffers.
const OUTPUT_MIB: usize = 60;
const OUTPUT_GROWTH_MIB: u64 = 7;
/// As much, with what waits for 16 viewers.
const VIEWED_GROWTH_MIB: u64 = 20;
/// The time until a session is killed, if its program ignores the first signal.
const GRACE: Duration = Duration::from_millis(100);

pub fn unread_input(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let peak = target.own().ok().map(PeakMemory::begin);
    // A terminal's line discipline drops what nobody reads.
    for tty in [false, true] {
        let body = json!({"cmd": "sleep", "args": ["1000"], "tty": tty});
        let session = workspace.start(&body);
        let data = json!({"data": "x".repeat(MIB / 8), "newline": true});
        let write = || promptly("a write", || workspace.post(&format!("{session}/write"), &data));
        let written: Vec<_> = (0..UNREAD_MIB_MAX * 8 * 3).map(|_| write()).collect();
        let taken = written.iter().take_while(|reply| reply.status == 200).count();
        if !tty {
            assert!(taken <= UNREAD_MIB_MAX * 8, "{taken} eighths of a MiB are unread");
            for refused in written.iter().skip(taken) {
                refused.assert_error(429, "session.input_full");
            }
        }
        let killed = json!({"grace_ms": 1});
        let killed = promptly("a kill", || workspace.post(&format!("{session}/kill"), &killed));
        assert_eq!(killed.json()["status"], "exited");
    }
    if let Some(peak) = peak {
        peak.assert_grew_at_most(8);
    }
    Ok(())
}

pub fn endless_output(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    workspace.sh("true");
    let peak = target.own().ok().map(PeakMemory::begin);
    // Very short lines first, then very long ones.
    let script = "for bytes in 5 70000; do head -c $1 /dev/zero | tr '\\0' x | fold -w $bytes; done; sleep 1000";
    let half = (OUTPUT_MIB * MIB / 2).to_string();
    let session = workspace.start(&json!({"cmd": "sh", "args": ["-c", script, "flood", half]}));
    let state = || promptly("a state", || workspace.get(&session)).json();
    wait_until("the whole output", Duration::from_secs(60), || {
        state()["bytes"].as_u64().unwrap() >= (OUTPUT_MIB * MIB) as u64
    });
    let state = state();
    let kept = state["bytes"].as_u64().unwrap() - state["first_byte"].as_u64().unwrap();
    assert!(kept <= 4 * MIB as u64, "{state}");
    assert_eq!(workspace.ask("DELETE", &session, b"").status, 204);
    if let Some(peak) = peak {
        peak.assert_grew_at_most(OUTPUT_GROWTH_MIB);
    }
    Ok(())
}

/// Attaches a viewer to a session.
fn attach(client: &EngineClient, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect(client.address()).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let request = format!(
        "GET {path}/attach HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: cofferdam.session.v1\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    socket
}

/// The first message on a connection.
fn first_message(socket: TcpStream) -> Message {
    WebSocket::from_raw_socket(socket, Role::Client, None).read().unwrap()
}

fn viewers(workspace: &Workspace<'_>, session: &str) -> Value {
    workspace.get(session).json()["viewers"].clone()
}

pub fn deaf_viewers(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    // It goes on printing, since a viewer that took something shortly before the end is not deaf yet.
    let script = "echo up; read go; head -c 24M /dev/zero; echo done >/workspace/done
        while :; do head -c 256k /dev/zero; sleep 0.05; done";
    let session = workspace.start_sh(script, "deaf");
    let path = format!("{}{session}", workspace.path);
    let deaf: Vec<TcpStream> = (0..VIEWERS_MAX).map(|_| attach(&client, &path)).collect();
    wait_until("all viewers", SOON, || viewers(&workspace, &session) == VIEWERS_MAX);
    let one_more = first_message(attach(&client, &path));
    let Message::Close(Some(CloseFrame { code, .. })) = one_more else { panic!("{one_more:?}") };
    assert_eq!(u16::from(code), 1013, "one viewer more");
    assert_eq!(viewers(&workspace, &session), VIEWERS_MAX);
    let peak = target.own().ok().map(PeakMemory::begin);
    let written = workspace.post(&format!("{session}/write"), &json!({"data": "\n"}));
    assert_eq!(written.status, 200);
    wait_until("the end of the output", SOON, || workspace.get("/stat?path=done").status == 200);
    wait_until("the end of deaf viewers", SOON, || viewers(&workspace, &session) == 0);
    if let Some(peak) = peak {
        peak.assert_grew_at_most(VIEWED_GROWTH_MIB);
    }
    drop(deaf);
    Ok(())
}

pub fn stubborn_children(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let marker = Marker::new();
    let word = marker.word();
    let deaf = "trap \"\" TERM INT HUP QUIT; while :; do sleep 1; done";
    // In sessions of their own, orphaned, stopped, and with the pipes of the session.
    let script = format!(
        "setsid sh -c '{deaf}' {word}1 & setsid sh -c 'setsid sh -c \"sleep 1000\" {word}2 & exit' {word}
         setsid sh -c 'kill -STOP $$' {word}3 & sh -c 'exec sleep 1000' {word}4 >/dev/null 2>&1 &
         (setsid sh -c '{deaf}' {word}5 &) ; echo up; {deaf}"
    );
    for tty in [false, true] {
        for how in ["kill", "close", "exit"] {
            let args = json!([
                "-c",
                if how == "exit" { format!("{script}; ") } else { script.clone() },
                word
            ]);
            let session = workspace.start(&json!({"cmd": "sh", "args": args, "tty": tty}));
            wait_until("the processes", SOON, || {
                workspace.get(&session).json()["lines"].as_u64().unwrap() > 0
            });
            if target.own().is_ok() {
                assert!(!marker.bearers().is_empty(), "nothing runs");
            }
            let start = Instant::now();
            match how {
                "kill" => {
                    let grace = json!({"grace_ms": GRACE.as_millis()});
                    let killed = workspace.post(&format!("{session}/kill"), &grace);
                    assert_eq!((killed.status, &killed.json()["status"]), (200, &json!("exited")));
                }
                "close" => assert_eq!(workspace.ask("DELETE", &session, b"").status, 204),
                _ => {
                    let signal = json!({"signal": "KILL"});
                    assert_eq!(workspace.post(&format!("{session}/signal"), &signal).status, 200);
                    wait_until("the end", SOON, || {
                        workspace.get(&session).json()["status"] == "exited"
                    });
                }
            }
            assert!(start.elapsed() < SOON, "{how}: {:?}", start.elapsed());
            if target.own().is_ok() {
                // All is dead when it is answered, except what the kernel still takes apart.
                marker.assert_gone();
            }
        }
    }
    Ok(())
}
