//! What a rule decides over: each request, in one form, whatever the connection wants to become.

use cofferdam_test_server::recorded::RecordedHost;
use serde_json::json;

use super::super::scene::printed;
use super::scene::{SECRET, attack, engine, plain_host, ruled, tls_host};
use crate::Unexercised;
use crate::target::{EGRESS_ADDRESS, Target};

const UPGRADES: &str = r"
def upgrade(path, head, behind=''):
    return get(at, path, head + 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n', body=behind)
hidden = f'GET http://{at}/hidden HTTP/1.1\r\nHost: {at}\r\n\r\n'
for head in ['Upgrade: websocket\r\n', 'Upgrade: WebSocket\r\n', 'Upgrade: h2c, websocket\r\n', 'Upgrade: x\r\nUpgrade: websocket\r\n', 'upgrade:websocket\r\n']:
    print('refused', code(upgrade('/other', head + 'Connection: upgrade\r\n', hidden)))
for head in ['Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n', 'Upgrade: TLS/1.0\r\n', 'Upgrade: connect-udp\r\n', 'Upgrade: websocket2\r\n']:
    print('plain', code(get(at, '/other', head + 'Connection: upgrade\r\n')))
print('switched', code(get(at, '/switched')))
print('posted', code(send(f'POST http://{at}/ws HTTP/1.1\r\nHost: {at}\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nhi' + hidden)))
stream = connect()
stream.sendall(f'GET http://{at}/ws HTTP/1.1\r\nHost: {at}\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n'.encode())
text = b''
while b'\r\n\r\n' not in text:
    text += stream.recv(1)
stream.sendall(b'frame')
print('allowed', code(text), stream.recv(5).decode())
";

pub fn websockets_without_leave(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = RecordedHost::serving(EGRESS_ADDRESS, None, |stream| {
        use std::io::Read;
        while let Some(head) = stream.read_head() {
            let is_asked = head.to_lowercase().contains("upgrade: websocket");
            if !is_asked && !head.contains("/switched") {
                stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                continue;
            }
            stream.send(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
            let mut frame = [0; 5];
            // The proxy may have ended it.
            if stream.read_exact(&mut frame).is_ok() {
                stream.send(&frame);
            }
            return;
        }
    });
    let at = host.authority();
    let rules = json!([{"plain": true, "path": "/ws", "websocket": true}, {"plain": true}]);
    let workspace = ruled(&client, &json!({"rules": {&at: rules}}));
    let result = attack(&workspace, &format!("at = '{at}'\n{UPGRADES}"));
    let lines = printed(&result);
    assert_eq!(lines[..5], ["refused 403 websocket"; 5], "{result}");
    assert_eq!(lines[5..9], ["plain 200"; 4], "{result}");
    assert_eq!(
        lines[9..],
        ["switched 502 connect", "posted 400 bad_request", "allowed 101 frame"],
        "{result}"
    );
    let expected =
        ["GET /other", "GET /other", "GET /other", "GET /other", "GET /switched", "GET /ws"];
    assert_eq!(host.requests(), expected, "{result}");
    let heard = host.heard().to_lowercase();
    assert!(!heard.contains("h2c") && !heard.contains("http2-settings"), "{heard}");
    Ok(())
}

const NESTED: &str = r"
for method in ['TRACE', 'trace', 'Trace']:
    print(code(get(plain, '/', method=method)), code(get(tls, '/', method=method, tls=True)))
    print(two(tls, fields(tls, '/', method)))
for to in [tls, plain, '127.0.0.3:443', 'localhost:80']:
    request = f'CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n'
    print(code(send(request, tls)), code(send(request.replace('CONNECT', 'connect'), tls)), code(send(f'CONNECT {tls} HTTP/1.1\r\nHost: {tls}\r\n\r\n' + request).split(b'\r\n\r\n', 1)[-1]))
    print(two(tls, [(':method', 'CONNECT'), (':authority', to)]))
    print(two(tls, [(':method', 'CONNECT'), (':protocol', 'websocket')] + fields(tls)[1:]))
print(code(send(f'CONNECT {plain} HTTP/1.1\r\nHost: {plain}\r\n\r\n')), code(get(tls, '/')))
print(code(send(f'CONNECT {tls} HTTP/1.1\r\nHost: {tls}\r\nContent-Length: 5\r\n\r\nhello')))
for request in ['OPTIONS * HTTP/1.1\r\nHost: {}\r\n\r\n', 'GET * HTTP/1.1\r\nHost: {}\r\n\r\n', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n']:
    print(code(send(request.format(plain))), code(send(request.format(tls), tls)))
print('own', code(get(plain, '/')), code(get(tls, '/', tls=True)))
";

pub fn tunnels_and_traces_within(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let (plain, tls) = (plain_host(), tls_host(target));
    let (first, second) = (plain.authority(), tls.authority());
    let rules = json!({&first: [{"plain": true}], &second: [{}]});
    let workspace = ruled(&client, &json!({"rules": rules}));
    let result = attack(&workspace, &format!("plain, tls = '{first}', '{second}'\n{NESTED}"));
    let lines = printed(&result);
    let (last, refused) = lines.split_last().unwrap();
    assert_eq!(*last, "own 200 200", "{result}");
    assert!(
        !refused.iter().any(|line| line.contains("200") || line.contains("answered")),
        "{result}"
    );
    for host in [&plain, &tls] {
        assert_eq!(host.requests(), ["GET /"], "{result}");
    }
    Ok(())
}

const PATHS: &str = r"
for number, path in enumerate([
    '/admin/x', '/api/../admin/x', '/api/%2e%2e/admin/x', '/api/.%2E/admin/x', '/api/a/../../admin/x', '/./admin/x', '/api/..//admin//x',
    '//admin/x', '///admin//x', '/ADMIN/x', '/aDmIn/x', '/%61dmin/x', '/%41dmin/x', '/admin;a=b/x', '/;a/admin/x', '/admin%3ba/x', '/admin//x',
    '/admin/', '/admin/%2e', '/admin/api/x', '/admin/x?/api/', '/admin/x;/api/', '/admin%20/../admin/x',
    '/api/../private', '/api/%2e%2e/private', '/api/./../private', '/api/x/../../private', '/private', '/Api/x', '/api', '/api%2', '/%61pi2/x',
    '/api/%2fadmin', '/api%2f..%2fadmin/x', '/api/..%2fadmin/x', '/api/%5c..%5cadmin', '/api/\\..\\admin', '/api/%00', '/api/x%00/../../admin',
    '/api/..;/admin/x', '/api/..;a=b/admin/x', '/api/.;/x', '/api/%2e%2e;/admin', '/api/%', '/api/%zz', '/api/%u002e', '/api/ x', '/api/\x7f', '/api/\t',
    'api/x', '', '*', '/api/../..', '/..', '/api/%c0%ae%c0%ae/%5c',
]):
    # The same decides within tunnels, which take longer to open.
    for tls in [False, True][:1 + (number % 4 == 1)]:
        print('refused', code(get(secure_at if tls else at, path, tls=tls)), repr(path))
for path in ['/api/x', '/api/./x', '/admin/../api/x', '/%61pi/%78', '/api/%252e%252e/admin/x', '/api/%252fadmin', '/api/x;y=..', '/api/...', '/api/x?a=../admin/%2f', '/api/x?/../admin']:
    print('allowed', code(get(at, path)), code(get(secure_at, path, tls=True)))
";

pub fn paths_in_other_spellings(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let (host, secure) = (plain_host(), tls_host(target));
    let (at, secure_at) = (host.authority(), secure.authority());
    let rules = |plain: bool| json!([{"plain": plain, "action": "deny", "path": "/admin/*"}, {"plain": plain, "path": "/api/*"}]);
    let network = json!({"rules": {&at: rules(true), &secure_at: rules(false)}});
    let workspace = ruled(&client, &network);
    let result = attack(&workspace, &format!("at, secure_at = '{at}', '{secure_at}'\n{PATHS}"));
    let (refused, allowed) =
        printed(&result).into_iter().partition::<Vec<_>, _>(|l| l.starts_with("refused"));
    let passed: Vec<_> = refused.iter().filter(|line| !line.starts_with("refused 40")).collect();
    assert!(passed.is_empty() && refused.len() > 60, "{passed:?}");
    assert_eq!(allowed, ["allowed 200 200"; 10], "{result}");
    let sent = [
        "/api/x",
        "/api/x",
        "/api/x",
        "/api/x",
        "/api/%252e%252e/admin/x",
        "/api/%252fadmin",
        "/api/x;y=..",
        "/api/...",
        "/api/x?a=../admin/%2f",
        "/api/x?/../admin",
    ]
    .map(|path| format!("GET {path}"));
    assert_eq!(host.requests(), sent, "{result}");
    assert_eq!(secure.requests(), sent, "{result}");
    Ok(())
}

const KEPT: &str = r#"
def line(to, path, tls, head=''):
    return f'GET {path if tls else f"http://{to}{path}"} HTTP/1.1\r\nHost: {to}\r\n{head}\r\n'
for to, tls in [(at, False), (secure_at, True)]:
    for order in [['/b', '/a', '/b', '/b', '/c'], ['/b', '/c', '/b'], ['/b', '/a?x=/b', '/b?/a', '/d']]:
        # One after the other, then all at once.
        stream = secure(to) if tls else connect()
        answers = []
        for path in order:
            stream.sendall(line(to, path, tls).encode())
            answers.append(status_of(stream))
            if answers[-1] != '200':
                break
        together = send(''.join(line(to, path, tls) for path in order), to if tls else None).decode()
        print(*answers, '/', *re.findall('HTTP/1.1 (\d+)', together))
"#;

pub fn another_rule_on_a_kept_connection(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let (host, secure) = (plain_host(), tls_host(target));
    let (at, secure_at) = (host.authority(), secure.authority());
    let rules = |plain: bool| {
        json!([
            {"plain": plain, "path": "/a", "headers": {"authorization": "Bearer {{secret.key}}"}, "query": {"by": "a"}},
            {"plain": plain, "path": "/b", "headers": {"x-rule": "b"}},
            {"plain": plain, "path": "/c", "action": "deny"},
        ])
    };
    let network = json!({
        "rules": {&at: rules(true), &secure_at: rules(false)},
        "secrets": {"key": {"value": SECRET, "hosts": [&at, &secure_at]}},
    });
    let workspace = ruled(&client, &network);
    let result = attack(&workspace, &format!("at, secure_at = '{at}', '{secure_at}'\n{KEPT}"));
    let each = [
        "200 200 200 200 403 / 200 200 200 200 403",
        "200 403 / 200 403",
        "200 200 200 403 / 200 200 200 403",
    ];
    assert_eq!(printed(&result), each.repeat(2), "{result}");
    for host in [&host, &secure] {
        let heard = host.heard();
        for request in heard.split("\r\n\r\n").filter(|request| request.contains("GET ")) {
            let is_a = request.contains("GET /a?");
            assert!(is_a || request.contains("GET /b"), "{request}");
            assert_eq!(request.contains(SECRET), is_a, "{request}");
            assert_eq!(request.contains("by=a"), is_a, "{request}");
            assert_eq!(request.contains("x-rule: b"), !is_a, "{request}");
        }
        assert_eq!(host.requests().len(), 16, "{heard}");
    }
    Ok(())
}

const CONTINUED: &str = r#"
def post(to, path, tls, head, body='', sent_at_once=True):
    target = path if tls else f'http://{to}{path}'
    stream = secure(to) if tls else connect()
    stream.sendall(f'POST {target} HTTP/1.1\r\nHost: {to}\r\n{head}\r\n{body if sent_at_once else ""}'.encode())
    if not sent_at_once:
        first = stream.recv(17)
        try:
            stream.sendall(body.encode())
            stream.shutdown(socket.SHUT_WR) if not tls else None
        except OSError:
            pass
        return first + reading(stream)
    stream.shutdown(socket.SHUT_WR) if not tls else None
    return reading(stream)
for to, tls in [(at, False), (secure_at, True)]:
    hidden = f'GET {"/hidden" if tls else f"http://{to}/hidden"} HTTP/1.1\r\nHost: {to}\r\n\r\n'
    for expect in ['100-continue', '100-Continue', '100-continue, x', 'x']:
        for at_once in [True, False]:
            head = f'Expect: {expect}\r\nContent-Length: {len(hidden)}\r\n'
            got = post(to, '/denied', tls, head, hidden + hidden, at_once)
            print('denied', len(re.findall(rb'HTTP/1.1', got)), code(got))
    got = post(to, '/allowed', tls, f'Expect: 100-continue\r\nConnection: close\r\nContent-Length: 4\r\n', 'body', False)
    print('allowed', re.findall(rb'HTTP/1.1 (\d+)', got))
    got = post(to, '/allowed', tls, f'Expect: 100-continue\r\nContent-Length: 4\r\n', 'bodyGET /hidden HTTP/1.1\r\n\r\n', True)
    print('behind', re.findall(rb'HTTP/1.1 (\d+)', got), b'hidden' in got)
"#;

pub fn bodies_that_wait_for_leave(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let (host, secure) = (plain_host(), tls_host(target));
    let (at, secure_at) = (host.authority(), secure.authority());
    let rules = |plain: bool| json!([{"plain": plain, "path": "/allowed"}]);
    let network = json!({"rules": {&at: rules(true), &secure_at: rules(false)}});
    let workspace = ruled(&client, &network);
    let result = attack(&workspace, &format!("at, secure_at = '{at}', '{secure_at}'\n{CONTINUED}"));
    let lines = printed(&result);
    let expected = [
        &["denied 1 403 no_rule"; 8][..],
        &["allowed [b'100', b'200']", "behind [b'100', b'200', b'400'] False"],
    ]
    .concat();
    assert_eq!(lines, expected.repeat(2), "{result}");
    for host in [&host, &secure] {
        let heard = host.heard();
        assert_eq!(host.requests(), ["POST /allowed"; 2], "{heard}");
        assert!(!heard.contains("hidden") && !heard.to_lowercase().contains("expect"), "{heard}");
        assert_eq!(heard.matches("body").count(), 2, "{heard}");
    }
    Ok(())
}
