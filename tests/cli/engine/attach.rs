//! `cofferdam workspace attach`.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::write;
use serde_json::json;

use super::web_socket_server::{Viewer, WebSocketServer};
use crate::support::{ends_within, pid_of};

const END: Duration = Duration::from_secs(10);

#[test]
fn output_goes_to_its_stream_and_the_exit_code_is_the_programs() {
    for (exit_code, signal, timed_out, code) in [
        (0, None, false, 0),
        (7, None, false, 7),
        (-1, Some(9), false, 137),
        (-1, Some(9), true, 124),
    ] {
        let server = WebSocketServer::new(move |viewer| {
            viewer.attached(false);
            viewer.output(1, b"out\xff\n");
            viewer.output(2, b"err");
            viewer.tell(&json!({"type": "later", "x": 1}));
            viewer.exit(exit_code, signal, timed_out);
            while viewer.next().is_some() {}
        });
        let done = server.attach("w s").run().exits(code);
        assert_eq!(done.output.stdout, b"out\xff\n");
        done.holds(done.stderr() == "err", "stderr");
        server.finish();
    }
}

#[test]
fn the_request_names_the_session_and_carries_the_token_in_a_header() {
    let place = tempfile::tempdir().unwrap();
    let token = place.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    let server = WebSocketServer::new(|viewer| {
        let line = "GET /v1/workspaces/w%2F/sessions/s/attach?offset=end&readonly=1";
        assert_eq!(viewer.line, line);
        assert_eq!(viewer.header("authorization"), Some("Bearer secret"));
        assert_eq!(viewer.header("sec-websocket-protocol"), Some("cofferdam.session.v1"));
        assert_eq!(viewer.header("origin"), None);
        viewer.attached(false);
        viewer.exit(0, None, false);
        while viewer.next().is_some() {}
    });
    let call = server.attach("w/ s --readonly --offset end --token-file").arg(token);
    call.run().exits(0).prints("");
    server.finish();
}

#[test]
fn input_is_forwarded_and_its_end_too() {
    let input: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    let wanted = input.clone();
    let server = WebSocketServer::new(move |viewer| {
        viewer.attached(false);
        let mut taken = Vec::new();
        while taken.len() < wanted.len() {
            taken.extend(viewer.input());
        }
        assert!(taken == wanted);
        assert_eq!(viewer.text(), json!({"type": "eof"}));
        viewer.exit(0, None, false);
        while viewer.next().is_some() {}
    });
    server.attach("w s").fed(input).run().exits(0).quietly();
    server.finish();
}

#[test]
fn a_viewer_that_is_read_only_sends_nothing() {
    let server = WebSocketServer::new(|viewer| {
        viewer.attached(true);
        viewer.output(1, b"x");
        viewer.exit(0, None, false);
        assert!(viewer.next().is_none(), "a message");
    });
    server.attach("w s --readonly").fed("typed").run().exits(0).prints("x");
    server.finish();
}

#[test]
fn output_that_is_gone_is_counted() {
    let server = WebSocketServer::new(|viewer| {
        viewer.attached(false);
        viewer.tell(&json!({"type": "truncated", "from": 10, "to": 30}));
        viewer.output(1, b"rest");
        viewer.exit(0, None, false);
        while viewer.next().is_some() {}
    });
    let done = server.attach("w s").run().exits(0).prints("rest");
    done.complains("20 bytes of earlier output are gone");
}

#[test]
fn a_service_that_closes_or_breaks_off_is_an_error() {
    type Script = fn(&mut Viewer);
    let scripts: [(Script, &str); 4] = [
        (|viewer| viewer.close(1013, "too much output is unread"), "too much output is unread"),
        (|_| {}, "is the service running"),
        (|viewer| viewer.output(9, b"x"), "not of a session"),
        (|viewer| viewer.tell(&json!(["attached"])), "want a cofferdam service"),
    ];
    for (script, words) in scripts {
        let server = WebSocketServer::new(move |viewer| {
            viewer.attached(false);
            script(viewer);
        });
        server.attach("w s").run().exits(1).prints("").complains(words);
    }
    let other = WebSocketServer::accepting(|_| "AAAA".to_owned(), |_| {});
    other.attach("w s").run().exits(1).complains("does not speak the protocol");
}

/// The command at a terminal of 90 columns and 20 rows.
struct AtTerminal {
    child: Child,
    /// Our end.
    keyboard: OwnedFd,
    terminal: OwnedFd,
}

impl AtTerminal {
    fn start(server: &WebSocketServer, options: &str) -> Self {
        let size = Winsize { ws_row: 20, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let ends = openpty(Some(&size), None).unwrap();
        let terminal = || Stdio::from(ends.slave.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        command.args(["workspace", "attach", "w", "s"]).args(options.split_whitespace());
        command.env("COFFERDAM_SERVER", &server.url).stdin(terminal()).stdout(terminal());
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        Self { child, keyboard: ends.master, terminal: ends.slave }
    }

    fn is_raw(&self) -> bool {
        let flags = tcgetattr(&self.terminal).unwrap().local_flags;
        !flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    #[track_caller]
    fn until_raw(&self) {
        let deadline = Instant::now() + END;
        while !self.is_raw() {
            assert!(Instant::now() < deadline, "the terminal stays as it was");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn types(&self, keys: &[u8]) {
        assert_eq!(write(&self.keyboard, keys).unwrap(), keys.len());
    }

    fn resize(&self, columns: &str) {
        let mut stty = Command::new("stty");
        let resized =
            stty.args(["cols", columns]).stdin(self.terminal.try_clone().unwrap()).status();
        assert!(resized.unwrap().success());
        // Sent by the kernel only where the terminal is the controlling one.
        kill(pid_of(&self.child), Signal::SIGWINCH).unwrap();
    }

    #[track_caller]
    fn ends(mut self, code: i32) {
        let status = ends_within(&mut self.child, END);
        assert_eq!(status.code(), Some(code));
        assert!(!self.is_raw(), "the terminal is not restored");
    }
}

#[test]
fn a_terminal_passes_every_key_and_its_size_and_is_restored() {
    let server = WebSocketServer::new(|viewer| {
        viewer.attached(true);
        let size = |cols| json!({"type": "resize", "cols": cols, "rows": 20});
        assert_eq!(viewer.text(), size(90));
        // Interrupt, end of file, suspend: keys like others.
        assert_eq!(viewer.input(), b"\x03\x04\x1a\x1d");
        assert_eq!(viewer.text(), size(100));
        viewer.exit(3, None, false);
        while viewer.next().is_some() {}
    });
    let attached = AtTerminal::start(&server, "");
    attached.until_raw();
    attached.types(b"\x03\x04\x1a\x1d");
    attached.resize("100");
    attached.ends(3);
    server.finish();
}

#[test]
fn the_terminal_is_restored_on_every_way_out() {
    fn wait(viewer: &mut Viewer) {
        viewer.attached(true);
        while viewer.next().is_some() {}
    }
    let server = WebSocketServer::new(wait);
    let attached = AtTerminal::start(&server, "");
    attached.until_raw();
    attached.types(b"\x1d");
    attached.ends(0);
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGINT, 130),
        (Signal::SIGQUIT, 131),
    ] {
        let server = WebSocketServer::new(wait);
        let attached = AtTerminal::start(&server, "");
        attached.until_raw();
        kill(pid_of(&attached.child), signal).unwrap();
        attached.ends(code);
    }
    let scripts: [fn(&mut Viewer); 2] = [|viewer| viewer.close(1013, "x"), |_| {}];
    for script in scripts {
        let server = WebSocketServer::new(move |viewer| {
            viewer.attached(true);
            viewer.text();
            // Typed when the terminal is raw.
            viewer.input();
            script(viewer);
        });
        let attached = AtTerminal::start(&server, "");
        attached.until_raw();
        attached.types(b"x");
        attached.ends(1);
    }
}

#[test]
fn a_session_without_terminal_leaves_ours_as_it_is() {
    let server = WebSocketServer::new(|viewer| {
        viewer.attached(false);
        assert_eq!(viewer.input(), b"line\n");
        assert_eq!(viewer.text(), json!({"type": "eof"}));
        viewer.exit(0, None, false);
        while viewer.next().is_some() {}
    });
    let attached = AtTerminal::start(&server, "");
    attached.types(b"line\n\x04");
    attached.ends(0);
    server.finish();
}

/// A reader that has stopped must not keep the command from ending.
#[test]
fn a_signal_ends_an_attach_whose_output_nobody_reads() {
    let server = WebSocketServer::new(|viewer| {
        viewer.attached(false);
        for _ in 0..64 {
            viewer.output(1, &[b'x'; 4096]);
        }
        while viewer.next().is_some() {}
    });
    let mut child = server.attach("w s").spawn();
    // Until the pipe is full.
    let stdout = child.stdout.take().unwrap();
    let deadline = Instant::now() + END;
    while is_writable(&stdout) {
        assert!(Instant::now() < deadline, "the pipe does not fill");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(ends_within(&mut child, END).code(), Some(143));
}

/// Whether a writer of this pipe would not block.
fn is_writable(pipe: &impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    let writer = fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut fds = [PollFd::new(writer.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
}
