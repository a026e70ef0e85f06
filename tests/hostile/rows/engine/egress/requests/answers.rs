//! Hosts that answer what no server should.

use std::io::Read;
use std::time::{Duration, Instant};

use cofferdam_test_server::recorded::{HostSideStream, RecordedHost};
use serde_json::json;

use super::super::scene::printed;
use super::scene::{attack, engine, plain_host, ruled, tls};
use crate::Unexercised;
use crate::engine::PeakMemory;
use crate::target::{EGRESS_ADDRESS, Target};

/// How long a host goes on that sends without end: longer than rules wait.
const ENDLESS: Duration = Duration::from_secs(15);

/// Sends `piece` until the proxy ends the connection.
fn send_without_end(stream: &mut HostSideStream, piece: &[u8]) {
    let began = Instant::now();
    while began.elapsed() < ENDLESS && stream.send(piece) {}
}

fn misbehave(stream: &mut HostSideStream) {
    while let Some(head) = stream.read_head() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let answer = match head.split([' ', '/']).nth(2).unwrap_or_default() {
            "never" => return stream.wait_end(),
            "nothing" => return,
            "informs" => {
                return send_without_end(stream, &b"HTTP/1.1 100 Continue\r\n\r\n".repeat(64));
            }
            "hints" => {
                return send_without_end(
                    stream,
                    &b"HTTP/1.1 103 Hints\r\nLink: <x>\r\n\r\n".repeat(64),
                );
            }
            "headers" => {
                stream.send(ok.as_bytes());
                return send_without_end(stream, &b"x: y\r\n".repeat(1000));
            }
            "early" => {
                stream.send(
                    b"HTTP/1.1 413 Early\r\nContent-Length: 5\r\nConnection: close\r\n\r\nearly",
                );
                return;
            }
            "both" => format!(
                "{ok}Content-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            ),
            "lengths" => format!("{ok}Content-Length: 2\r\nContent-Length: 5\r\n\r\nok"),
            "negative" => format!("{ok}Content-Length: -2\r\n\r\nok"),
            "chunk" => format!("{ok}Transfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n"),
            "codings" => {
                format!("{ok}Transfer-Encoding: chunked, identity\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            }
            "garbage" => "SSH-2.0-x\r\n\r\n".to_owned(),
            "old" => "<html>ok</html>\r\n\r\n".to_owned(),
            "switch" => "HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_owned(),
            "split" => format!("{ok}X: y\rSet-Cookie: a\r\nContent-Length: 2\r\n\r\nok"),
            "zero" => format!("{ok}X: y\0z\r\nContent-Length: 2\r\n\r\nok"),
            "truncated" => {
                stream.send(format!("{ok}Content-Length: 100\r\n\r\nok").as_bytes());
                return;
            }
            "two" => {
                format!("{ok}Content-Length: 3\r\n\r\ntwo{ok}Content-Length: 8\r\n\r\npoisoned")
            }
            "empty" => format!("HTTP/1.1 204 N\r\n\r\n{ok}Content-Length: 8\r\n\r\npoisoned"),
            "head" => {
                format!("{ok}Content-Length: 62\r\n\r\n{ok}Content-Length: 8\r\n\r\npoisoned")
            }
            path => format!("{ok}Content-Length: {}\r\n\r\n{path}", path.len()),
        };
        if !stream.send(answer.as_bytes()) {
            return;
        }
    }
}

const MISBEHAVED: &str = r"
for path in ['never', 'nothing', 'informs', 'hints', 'headers', 'lengths', 'negative', 'codings', 'garbage', 'old', 'switch', 'split', 'zero']:
    # Within TLS it is the same code.
    both = [False, True] if path in ['never', 'nothing', 'headers', 'lengths', 'switch'] else [False]
    print(path, *{code(get(secure_at if tls else at, '/' + path, tls=tls)) for tls in both})
for path in ['both', 'chunk', 'truncated']:
    got = get(at, '/' + path).decode('latin1')
    seen, got = code(got), got.lower()
    print(path, seen, got.count('content-length'), got.count('transfer-encoding'), got.endswith('0\r\n\r\n'))
print('early', code(get(at, '/early', 'Content-Length: 1000000\r\n', method='POST', body='x')))
# The proxy discards an answer that has no request.
def one(stream, path, tls, method='GET'):
    to, target = (secure_at, f'/{path}') if tls else (at, f'http://{at}/{path}')
    stream.sendall(f'{method} {target} HTTP/1.1\r\nHost: {to}\r\n\r\n'.encode())
    text = b''
    while b'\r\n\r\n' not in text:
        text += stream.recv(1)
    length = re.search(rb'(?i)content-length: (\d+)', text)
    body = b''
    while method != 'HEAD' and length and len(body) < int(length[1]):
        body += stream.recv(int(length[1]) - len(body))
    return body.decode()
for tls in [False, True]:
    for first, method in [('two', 'GET'), ('empty', 'GET'), ('head', 'HEAD')]:
        for _ in range(3):
            stream = secure(secure_at) if tls else connect()
            one(stream, first, tls, method)
            print('own', one(stream, 'mine', tls), one(stream, 'next', tls))
print('own', code(get(at, '/mine')), code(get(secure_at, '/mine', tls=True)))
";

pub fn of_http1(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = RecordedHost::serving(EGRESS_ADDRESS, None, misbehave);
    let secure = RecordedHost::serving(EGRESS_ADDRESS, Some(tls(target, "http/1.1")), misbehave);
    let (at, secure_at) = (host.authority(), secure.authority());
    let rules = |plain: bool| {
        let waits = ["/never", "/informs", "/hints"];
        let short = waits.map(|path| json!({"plain": plain, "path": path, "wait_ms": 100}));
        short.into_iter().chain([json!({"plain": plain})]).collect::<Vec<_>>()
    };
    let network = json!({"rules": {&at: rules(true), &secure_at: rules(false)}});
    let workspace = ruled(&client, &network);
    let result =
        attack(&workspace, &format!("at, secure_at = '{at}', '{secure_at}'\n{MISBEHAVED}"));
    let lines = printed(&result);
    for line in &lines[..13] {
        let (path, codes) = line.split_once(' ').unwrap();
        let reason = if path == "codings" { "encoding" } else { "connect" };
        assert_eq!(codes, format!("502 {reason}"), "{path}: {result}");
    }
    assert_eq!(lines[13], "both 200 0 1 True", "{result}");
    assert_eq!(lines[14], "chunk 200 0 1 False", "{result}");
    assert_eq!(lines[15], "truncated 200 1 0 False", "{result}");
    assert_eq!(lines[16], "early 413", "{result}");
    assert_eq!(lines[17..35], ["own mine next"; 18], "{result}");
    assert_eq!(lines[35..], ["own 200 200"], "{result}");
    Ok(())
}

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What an HTTP/2 host does once it has got the head of a request.
type TwoScript = fn(&mut HostSideStream, u32);

const TWO_SCRIPTS: [(&str, TwoScript); 11] = [
    ("good", |stream, number| {
        stream.send(&frame(1, 5, number, &[0x88]));
    }),
    ("never", |_, _| {}),
    ("reset", |stream, number| {
        stream.send(&frame(3, 0, number, &[0, 0, 0, 2]));
    }),
    ("resets", |stream, _| {
        let resets = (1..20_000).flat_map(|number| frame(3, 0, number * 2, &[0; 4]));
        stream.send(&resets.collect::<Vec<u8>>());
    }),
    ("continued", |stream, number| {
        stream.send(&frame(1, 0, number, &[0x88]));
        // The name and value of a header, again and again.
        let block = [&[0, 1, b'x', 100][..], &[b'y'; 100]].concat().repeat(100);
        send_without_end(stream, &frame(9, 0, number, &block));
    }),
    ("empty", |stream, number| {
        stream.send(&frame(1, 0, number, &[0x88]));
        send_without_end(stream, &frame(9, 0, number, &[]).repeat(100));
    }),
    ("settings", |stream, _| {
        send_without_end(stream, &frame(4, 0, 0, &[0, 4, 0, 0, 255, 255]).repeat(100));
    }),
    ("pings", |stream, _| send_without_end(stream, &frame(6, 0, 0, &[0; 8]).repeat(100))),
    ("pushed", |stream, number| {
        stream.send(&frame(5, 4, number, &[0, 0, 0, 2, 0x82, 0x87, 0x84]));
    }),
    ("other", |stream, number| {
        stream.send(&frame(1, 5, number + 2, &[0x88]));
    }),
    ("window", |stream, _| {
        stream.send(&frame(8, 0, 0, &[0x7f, 255, 255, 255]).repeat(4));
    }),
];

fn serve_http2(stream: &mut HostSideStream, script: TwoScript) {
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).is_err() || !stream.send(&frame(4, 0, 0, &[])) {
        return;
    }
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        if head[3] == 4 && head[4] & 1 == 0 {
            stream.send(&frame(4, 1, 0, &[]));
        }
        if head[3] == 1 {
            script(stream, u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

pub fn of_http2(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let hosts = TWO_SCRIPTS.map(|(name, script)| {
        let serve = move |stream: &mut HostSideStream| serve_http2(stream, script);
        (name, RecordedHost::serving(EGRESS_ADDRESS, Some(tls(target, "h2")), serve))
    });
    let beside = plain_host();
    let mut rules = json!({beside.authority(): [{"plain": true}]});
    for (name, host) in &hosts {
        let rule = if *name == "good" { json!({}) } else { json!({"wait_ms": 100}) };
        rules[host.authority()] = json!([rule]);
    }
    let workspace = ruled(&client, &json!({"rules": rules}));
    let all: Vec<_> =
        hosts.iter().map(|(name, host)| [(*name).to_owned(), host.authority()]).collect();
    let memory = PeakMemory::begin(target.own()?);
    let program = format!(
        "for name, at in {all:?}:
    over_two = two(at, fields(at, '/')) if name in ['good', 'never', 'continued'] else 'not asked'
    print(name, code(get(at, '/', tls=True)), over_two, code(get('{}', '/')))
",
        beside.authority()
    );
    let result = attack(&workspace, &program);
    memory.assert_grew_at_most(48);
    let expected = hosts.iter().map(|(name, _)| match *name {
        "good" => "good 200 answered 200".to_owned(),
        "never" | "continued" => format!("{name} 502 connect connect 200"),
        _ => format!("{name} 502 connect not asked 200"),
    });
    let expected: Vec<String> = expected.collect();
    assert_eq!(printed(&result), expected, "{result}");
    Ok(())
}
