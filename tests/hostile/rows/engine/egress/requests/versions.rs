//! Requests of HTTP/2: what becomes of them in HTTP/1, and how many there may be.

use serde_json::json;

use super::super::scene::printed;
use super::scene::{attack, engine, ruled, tls_host};
use crate::Unexercised;
use crate::target::Target;

const DOWNGRADED: &str = r"
hidden = f' HTTP/1.1\r\nHost: {at}\r\n\r\nGET /smuggled'
behind = f'GET /smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n'
for sent in [
    fields(at, '/allowed' + hidden), fields(at, '/allowed\r\nx: y'), fields(at, '/allowed\n'), fields(at, '/allowed\0'), fields(at, '/allowed /smuggled'),
    fields(at, method='GET /smuggled HTTP/1.1\r\nx: y\r\n\r\nGET'), fields(at, method='GET /smuggled'), fields(at, method=''),
    fields(at + hidden), fields(at, more=[('x', 'y\r\n\r\n' + behind)]), fields(at, more=[('x', 'y\nz: 1')]), fields(at, more=[('x', 'y\0')]),
    fields(at, more=[('x: y\r\nz', '1')]), fields(at, more=[('x\r\n\r\n' + behind, '1')]), fields(at, more=[('x ', '1')]), fields(at, more=[('', '1')]),
    fields(at, more=[(':x', '1')]), fields(at, more=[('X', '1')]), fields(at, more=[('connection', 'close')]), fields(at, more=[('transfer-encoding', 'chunked')]),
    fields(at, more=[('upgrade', 'websocket')]), fields(at, more=[('te', 'gzip')]), fields(at, more=[(':path', '/smuggled')]), fields(at, '/smuggled'), fields(at, '//smuggled'),
    fields(at, '/allowed/../smuggled'), fields(at, f'https://{at}/smuggled'), fields(at, 'http://x/smuggled'), [('x', 'y')] + fields(at), fields(at)[1:], fields(at)[:1] + fields(at)[2:],
]:
    print('refused', two(at, sent), repr(sent)[-60:])
for more in [[('content-length', '5')], [('content-length', '5'), ('content-length', '0')], [('content-length', '+5')], [('content-length', '5, 5')], [('content-length', '0x5')]]:
    print('refused', two(at, fields(at, method='POST', more=more), behind.encode()))
print('whole', two(at, fields(at, method='POST', more=[('content-length', '0')]), behind.encode()))
print('own', two(at, fields(at, method='POST'), behind.encode()), two(at, fields(at, method='POST', more=[('content-length', str(len(behind)))]), behind.encode()))
";

pub fn smuggled_into_http1(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = tls_host(target);
    let at = host.authority();
    let workspace = ruled(&client, &json!({"rules": {&at: [{"path": "/allowed"}]}}));
    let result = attack(&workspace, &format!("at = '{at}'\n{DOWNGRADED}"));
    let lines = printed(&result);
    let [refused @ .., whole, last] = &lines[..] else { panic!("{result}") };
    assert_eq!(refused.len(), 36, "{result}");
    let passed: Vec<_> =
        refused.iter().filter(|line| line.starts_with("refused answered")).collect();
    assert!(passed.is_empty(), "{passed:?}: {}", host.heard());
    // It is complete without its body, so its answer may come before the body is refused.
    assert!(
        ["whole answered", "whole reset", "whole goaway", "whole closed"].contains(whole),
        "{result}"
    );
    assert_eq!(*last, "own answered answered", "{result}");
    // Bodies that look like a request are bodies: within chunks, or a length.
    let heard = host.heard();
    let asked = heard.lines().filter(|line| line.ends_with("/allowed HTTP/1.1"));
    assert!(asked.clone().all(|line| line == "POST /allowed HTTP/1.1"), "{heard}");
    let framed = heard.matches("transfer-encoding: chunked").count()
        + heard.matches("content-length").count();
    assert_eq!(framed, asked.count(), "{heard}");
    let bodies = heard.split("POST /allowed").filter(|request| request.contains("/smuggled"));
    assert!(bodies.count() <= 2, "{heard}");
    Ok(())
}

/// Streams that are opened and given up at once, among them some that no rule allows.
const RESET: &str = r"
connection = Two(at)
sent = 0
try:
    for start in range(0, 4000, 100):
        batch = b''
        for number in range(start, start + 100):
            path = '/denied' if number % 2 else '/allowed'
            batch += frame(1, 5, 2 * number + 1, block(fields(at, path))) + frame(3, 0, 2 * number + 1, bytes([0, 0, 0, 8]))
        connection.stream.sendall(batch)
        sent += 100
    while connection.read_frame()[0] != 7:
        pass
    print('goaway')
except OSError:
    print('closed')
others = [Two(at) for _ in range(4)]
for other in others:
    other.stream.sendall(b''.join(frame(1, 4, 2 * number + 1, block(fields(at, method='POST'))) for number in range(12)))
print('own', code(get(at, '/allowed', tls=True)))
for flood in [frame(6, 0, 0, bytes(8)) * 5000, frame(4, 0, 0) * 5000, frame(3, 0, 1, bytes(4)) * 50, frame(1, 0, 1, block(fields(at))) + frame(9, 0, 1, block([('x', 'y' * 100)]) * 20) * 200]:
    try:
        other = Two(at)
        other.stream.settimeout(10)
        other.stream.sendall(flood)
        other.stream.close()
    except OSError:
        pass
for other in others:
    other.stream.close()
print('own', code(get(at, '/allowed', tls=True)), two(at, fields(at)), two(at, fields(at, '/denied')))
";

pub fn streams_given_up(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = tls_host(target);
    let at = host.authority();
    let workspace = ruled(&client, &json!({"rules": {&at: [{"path": "/allowed"}]}}));
    let result = attack(&workspace, &format!("at = '{at}'\n{RESET}"));
    let lines = printed(&result);
    assert!(["goaway", "closed"].contains(&lines[0]), "{result}");
    assert_eq!(lines[1..], ["own 200", "own 200 answered no_rule"], "{result}");
    let requests = host.requests();
    assert!(requests.iter().all(|line| line.ends_with(" /allowed")), "{requests:?}");
    // Of 4000 streams it is sent away after a few.
    assert!(requests.len() < 400, "{} requests", requests.len());
    Ok(())
}
