//! What a program may use: heads, requests, bytes, time.

use cofferdam_test_server::recorded::RecordedHost;
use serde_json::json;

use super::super::scene::printed;
use super::scene::{attack, engine, plain_host, ruled, tls_host};
use crate::Unexercised;
use crate::target::{EGRESS_ADDRESS, Target};

const HEADS: &str = r"
line = 'x: ' + 'y' * 17000 + '\r\n'
many = ''.join(f'x{n}: y\r\n' for n in range(3000))
for head in [line, many, 'x: y\r\n' * 5000, 'y' * 20000 + ': x\r\n', 'x:\r\n' * 6000]:
    print(code(get(at, '/', head)), code(get(secure_at, '/', head, tls=True)))
print(code(get(at, '/' + 'a' * 20000)), code(get(secure_at, '/' + 'a' * 20000, tls=True)))
print(code(send('G' * 20000)), code(send('\r\n' * 20000 + f'GET http://{at}/ HTTP/1.1\r\n')))
for more in [[('x', 'y' * 17000)], [(f'x{n}', 'y') for n in range(3000)]]:
    print('h2', two(secure_at, fields(secure_at, '/', more=more)))
for path in ['/huge', '/many', '/line']:
    print(path, code(get(at, path)))
print('own', code(get(at, '/')), code(get(secure_at, '/', tls=True)))
";

pub fn heads_without_end(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = RecordedHost::answering(EGRESS_ADDRESS, None, |head| {
        let more = match head.split([' ', '/']).nth(2) {
            Some("huge") => format!("X: {}\r\n", "y".repeat(300_000)),
            Some("many") => "x: y\r\n".repeat(20_000),
            Some("line") => {
                return format!("HTTP/1.1 200 {}\r\n\r\n", "O".repeat(300_000)).into_bytes();
            }
            _ => String::new(),
        };
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{more}\r\n").into_bytes()
    });
    let secure = tls_host(target);
    let (at, secure_at) = (host.authority(), secure.authority());
    let rules = json!({&at: [{"plain": true}], &secure_at: [{}]});
    let workspace = ruled(&client, &json!({"rules": rules}));
    let result = attack(&workspace, &format!("at, secure_at = '{at}', '{secure_at}'\n{HEADS}"));
    let lines = printed(&result);
    assert_eq!(lines[..7], ["400 bad_request 400 bad_request"; 7], "{result}");
    assert!(lines[7..9].iter().all(|line| *line != "h2 answered"), "{result}");
    let answers = ["/huge 502 connect", "/many 502 connect", "/line 502 connect", "own 200 200"];
    assert_eq!(lines[9..], answers, "{result}");
    assert_eq!(host.requests(), ["GET /huge", "GET /many", "GET /line", "GET /"], "{result}");
    assert_eq!(secure.requests(), ["GET /"], "{result}");
    Ok(())
}

/// Requests whose heads or bodies do not end, and one that is not answered.
const SLOW: &str = r"
def begin(text, tls):
    stream = secure(secure_at) if tls else connect()
    stream.sendall(text.encode())
    return stream
open_ones = [begin('GET / HTT', n % 2) for n in range(20)]
for n in range(20):
    target, to = ('/', secure_at) if n % 2 else (f'http://{at}/', at)
    open_ones.append(begin(f'POST {target} HTTP/1.1\r\nHost: {to}\r\nContent-Length: 10\r\n\r\nx', n % 2))
tunnels = [connect() for _ in range(10)]
print(*[tunnel(one, secure_at) for one in tunnels[:2]], 'own', code(get(at, '/')), code(get(secure_at, '/', tls=True)), two(secure_at, fields(secure_at, '/')))
for stream in open_ones + tunnels:
    stream.close()
print(code(get(at, '/never')), code(get(at, '/')))
";

pub fn requests_that_do_not_end(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = RecordedHost::serving(EGRESS_ADDRESS, None, |stream| {
        while let Some(head) = stream.read_head() {
            if head.contains(" /never ") {
                stream.wait_end();
                return;
            }
            stream.read_body(&head);
            stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let secure = tls_host(target);
    let (at, secure_at) = (host.authority(), secure.authority());
    let plain = json!([{"plain": true, "path": "/never", "wait_ms": 300}, {"plain": true}]);
    let workspace = ruled(&client, &json!({"rules": {&at: plain, &secure_at: [{}]}}));
    let result = attack(&workspace, &format!("at, secure_at = '{at}', '{secure_at}'\n{SLOW}"));
    let lines = ["200 200 own 200 200 answered", "502 connect 200"];
    assert_eq!(printed(&result), lines, "{result}");
    Ok(())
}

const RACED: &str = r"
streams = [secure(secure_at) for _ in range(32)] + [connect() for _ in range(32)]
for stream in streams[:32]:
    stream.sendall(f'GET / HTTP/1.1\r\nHost: {secure_at}\r\n\r\n'.encode())
for stream in streams[32:]:
    stream.sendall(f'GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n'.encode())
print(*[answer(stream) for stream in streams])
for stream in streams:
    stream.close()
# The proxy hears of closed connections a little later.
while code(get(at, '/other')) == '403 connections':
    time.sleep(0.01)
print(code(get(at, '/')), code(get(secure_at, '/', tls=True)), code(get(at, '/other')))
";

pub fn more_requests_than_a_rule_allows(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let (host, secure) = (plain_host(), tls_host(target));
    let (at, secure_at) = (host.authority(), secure.authority());
    let plain = json!([{"plain": true, "path": "/", "requests_max": 10}, {"plain": true}]);
    let rules = json!({&at: plain, &secure_at: [{"requests_max": 7}]});
    let workspace = ruled(&client, &json!({"rules": rules}));
    let result = attack(&workspace, &format!("at, secure_at = '{at}', '{secure_at}'\n{RACED}"));
    let lines = printed(&result);
    let codes: Vec<_> = lines[0].split(' ').collect();
    let passed = |codes: &[&str]| codes.iter().filter(|code| **code == "200").count();
    assert_eq!((passed(&codes[..32]), passed(&codes[32..])), (7, 10), "{result}");
    assert_eq!(codes.iter().filter(|code| **code == "429").count(), 64 - 17, "{result}");
    assert_eq!(lines[1..], ["429 requests_max 429 requests_max 200"], "{result}");
    let requests = host.requests();
    assert_eq!(requests.iter().filter(|line| *line == "GET /").count(), 10, "{result}");
    assert_eq!(secure.requests(), ["GET /"; 7], "{result}");
    Ok(())
}

const BYTES: &str = r#"
def post(body, length=None, chunks=None):
    head = f'Content-Length: {length}\r\n' if length is not None else 'Transfer-Encoding: chunked\r\n'
    return get(at, '/up', head, method='POST', body=body)
print('up', code(post('x' * 1001, 1001)), code(post('', 10 ** 17)), code(post('x' * 1000, 1000)))
for sizes in [[5000], [1000, 1], [1] * 1001, [999, 999]]:
    got = post(''.join(f'{size:x}\r\n{"x" * size}\r\n' for size in sizes) + '0\r\n\r\n')
    print('up', code(got))
streams = [connect() for _ in range(16)]
for stream in streams:
    stream.sendall(f'POST http://{at}/up HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n'.encode() + b'y' * 1000 + b'\r\n')
for stream in streams:
    stream.sendall(b'1\r\ny\r\n0\r\n\r\n')
print('raced', *{answer(stream) for stream in streams})
for path in ['/length/1000', '/chunked/1000', '/length/1001', '/chunked/5000']:
    got = get(at, path)
    print('down', code(got), got.count(b'z') <= 1000, got.endswith(b'0\r\n\r\n'), path)
"#;

pub fn more_bytes_than_a_rule_allows(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = RecordedHost::answering(EGRESS_ADDRESS, None, |head| {
        let mut words = head.split(['/', ' ']).skip(2);
        let (kind, bytes) = (words.next(), words.next().and_then(|word| word.parse().ok()));
        let body = "z".repeat(bytes.unwrap_or(0));
        match kind {
            Some("chunked") => {
                let chunk = format!("{:x}\r\n{body}\r\n", body.len());
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n")
            }
            _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        }
        .into_bytes()
    });
    let at = host.authority();
    let rules = json!([{"plain": true, "request_bytes_max": 1000, "response_bytes_max": 1000}]);
    let workspace = ruled(&client, &json!({"rules": {&at: rules}}));
    let result = attack(&workspace, &format!("at = '{at}'\n{BYTES}"));
    let lines = printed(&result);
    assert_eq!(lines[0], "up 429 bytes_max 429 bytes_max 200", "{result}");
    assert!(lines[1..5].iter().all(|line| !line.starts_with("up 200")), "{result}");
    assert!(!lines[5].contains("200"), "{result}");
    assert_eq!(lines[6], "down 200 True False /length/1000", "{result}");
    assert_eq!(lines[7], "down 200 True True /chunked/1000", "{result}");
    assert_eq!(lines[8], "down 429 bytes_max True False /length/1001", "{result}");
    // Cut in the middle, so that no reader takes it for the whole.
    assert_eq!(lines[9], "down 200 True False /chunked/5000", "{result}");
    let heard = host.heard();
    for request in heard.split("POST /up").skip(1) {
        let bytes = request.matches(['x', 'y']).count();
        assert!(bytes <= 1010, "{bytes} bytes were sent");
        assert!(bytes <= 1000 || !request.contains("\r\n0\r\n\r\n"), "{request}");
    }
    Ok(())
}
