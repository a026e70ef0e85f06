//! Requests that name several hosts: in the tunnel, in its TLS, in the first line, in `Host`.

use cofferdam_test_server::recorded::RecordedHost;
use serde_json::json;

use super::super::scene::{printed, reasons};
use super::scene::{attack, engine, plain_host, ruled, tls_host, verdicts};
use crate::Unexercised;
use crate::target::Target;

/// Asks over HTTP/2 in ways that name another host, two, or none.
const AUTHORITIES: &str = r"
port = at.split(':')[1]
more = lambda *hosts: [('host', host) for host in hosts]
print('own', two(at, fields(at)), two(at, fields(at, more=more(at))), two(at, fields(None, more=more(at))))
for authority in ['127.0.0.3:' + port, 'localhost:' + port, 'LOCALHOST:' + port, '127.0.0.2', '127.0.0.2:1', '127.0.0.3']:
    print('foreign', two(at, fields(authority)))
print('foreign', two(at, fields(at, more=more('127.0.0.3:' + port))))
print('foreign', two(at, fields('127.0.0.3:' + port, more=more(at))))
print('foreign', two(at, fields(None, more=more('127.0.0.3:' + port))))
for sent in [
    fields('user@' + at), fields('127.0.0.3@' + at), fields(at + '@127.0.0.3'), fields(at + ',127.0.0.3'),
    fields(None), fields(at, more=more(at, at)), fields(at, more=more('127.0.0.3', at)), fields(''),
    fields('127.0.0.2:' + port + ':80'), fields('127.0.0.2:+' + port), fields('127.0.0.2:0'), fields(at + '/allowed'),
    fields(at + '\0'), fields(at + '#'), fields('[127.0.0.2]:' + port + ']'),
    fields(at) + [(':authority', '127.0.0.3')], [(':scheme', 'http')] + fields(at)[2:] + [(':method', 'GET')],
]:
    print('malformed', two(at, sent))
kept = Two(at)
print('kept', kept.ask(fields(at)), kept.ask(fields('127.0.0.3:' + port)), kept.ask(fields(at)))
";

pub fn of_http2(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = tls_host(target);
    let at = host.authority();
    let workspace = ruled(&client, &json!({"rules": {&at: [{"path": "/allowed"}]}}));
    let result = attack(&workspace, &format!("at = '{at}'\n{AUTHORITIES}"));
    let lines = printed(&result);
    assert_eq!(lines[0], "own answered answered answered", "{result}");
    let of = |kind: &str| -> Vec<String> {
        let fitting = lines.iter().filter_map(|line| line.strip_prefix(kind));
        fitting.map(|word| word.trim().to_owned()).collect()
    };
    assert_eq!(of("foreign "), ["host_mismatch"; 9], "{result}");
    let malformed = of("malformed ");
    assert_eq!(malformed.len(), 17, "{result}");
    assert!(malformed.iter().all(|word| word != "answered"), "{result}");
    assert_eq!(of("kept "), ["answered host_mismatch answered"], "{result}");
    let told = verdicts(&result);
    assert_eq!(told.iter().filter(|one| *one == "421 host_mismatch").count(), 10, "{result}");
    assert_eq!(host.requests(), ["GET /allowed"; 5], "{result}");
    assert!(host.heard().matches(&format!("host: {at}\r\n")).count() == 5, "{}", host.heard());
    Ok(())
}

/// Every pair of names that differ, each of which has rules of its own.
const PAIRS: &str = r"
both = [(plain, other_plain), (other_plain, plain)]
for first, second in both:
    print(code(send(f'GET http://{first}/ HTTP/1.1\r\nHost: {second}\r\n\r\n')))
    print(code(send(f'GET http://{first}/ HTTP/1.1\r\nHost: {first}\r\nHost: {second}\r\n\r\n')))
    print(code(send(f'GET http://{first}@{second}/ HTTP/1.1\r\nHost: {second}\r\n\r\n')))
for first, second in [(tls, other_tls), (other_tls, tls)]:
    print(code(send(f'CONNECT {first} HTTP/1.1\r\nHost: {second}\r\n\r\n')))
    print(code(send(f'GET / HTTP/1.1\r\nHost: {second}\r\n\r\n', first)))
    print(code(send(f'GET https://{second}/ HTTP/1.1\r\nHost: {second}\r\n\r\n', first)))
    print(code(send(f'GET https://{second}/ HTTP/1.1\r\nHost: {first}\r\n\r\n', first)))
    print(code(send(f'GET https://{first}/ HTTP/1.1\r\nHost: {second}\r\n\r\n', first)))
    print(code(send(f'GET / HTTP/1.1\r\nHost: {first}\r\n\r\n', first, 'localhost')))
    print(code(send(f'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n', first, 'localhost')))
    print(code(send(f'GET / HTTP/1.1\r\nHost: {first}\r\nHost: {first}\r\n\r\n', first)))
    print(code(send(f'GET http://{plain}/ HTTP/1.1\r\nHost: {plain}\r\n\r\n', first)))
print('own', code(get(plain, '/')), code(get(other_plain, '/')), code(get(tls, '/', tls=True)), code(get(other_tls, '/', tls=True)))
";

pub fn that_differ_in_pairs(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let plain = [plain_host(), plain_host()];
    let tls = [tls_host(target), tls_host(target)];
    let [first, second] = plain.each_ref().map(RecordedHost::authority);
    let [third, fourth] = tls.each_ref().map(RecordedHost::authority);
    let network = json!({"rules": {
        &first: [{"plain": true}], &second: [{"plain": true}], &third: [{}], &fourth: [{}],
    }});
    let workspace = ruled(&client, &network);
    let program = format!(
        "plain, other_plain, tls, other_tls = '{first}', '{second}', '{third}', '{fourth}'\n{PAIRS}"
    );
    let result = attack(&workspace, &program);
    let (own, refused) =
        printed(&result).into_iter().partition::<Vec<_>, _>(|l| l.starts_with("own"));
    assert_eq!(own, ["own 200 200 200 200"], "{result}");
    assert_eq!(refused.len(), 24, "{result}");
    let is_refused =
        |line: &&str| ["400", "403", "closed"].iter().any(|code| line.starts_with(code));
    assert!(refused.iter().all(is_refused), "{result}");
    for host in plain.iter().chain(&tls) {
        assert_eq!(host.requests(), ["GET /"], "{result}");
    }
    Ok(())
}

/// Looks at whom the proxy speaks for, and offers certificates of its own.
const CERTIFICATES: &str = r"
import subprocess
def verified(to, name):
    proxy = connect()
    if tunnel(proxy, to) != '200':
        return 'no tunnel'
    try:
        ssl.create_default_context(cafile=os.environ['SSL_CERT_FILE']).wrap_socket(proxy, server_hostname=name)
        return 'proven'
    except ssl.SSLCertVerificationError as error:
        return 'unproven'
    except OSError:
        return 'closed'
for name in ['localhost', 'LOCALHOST.', 'a.test', '127.0.0.2.test']:
    print('other name', 'shown' if secure(ruled, name) else 'closed')
print(verified(ruled, '127.0.0.2'), verified(ruled, '127.0.0.3'), verified(listed, '127.0.0.2'), tunnel(connect(), '127.0.0.3:443'))
made = ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=127.0.0.2', '-keyout', 'own.key', '-out', 'own.pem']
subprocess.run(made, capture_output=True, check=True)
stream = secure(ruled, pair=('own.pem', 'own.key'))
stream.sendall(f'GET /own HTTP/1.1\r\nHost: {ruled}\r\nConnection: close\r\n\r\n'.encode())
print(code(reading(stream)))
# What claims to be a server, in place of a client, and a hello of the oldest kind.
for first in [b'\x16\x03\x03\x00\x04\x02\x00\x00\x00', b'\x80\x2e\x01\x00\x02' + bytes(60), b'\x16\x03\x01\x00\x00']:
    proxy = connect()
    tunnel(proxy, ruled)
    proxy.sendall(first)
    proxy.shutdown(socket.SHUT_WR)
    reading(proxy)
print('done')
";

pub fn in_certificates(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let (host, listed) = (tls_host(target), tls_host(target));
    let (at, beside) = (host.authority(), listed.authority());
    let workspace = ruled(&client, &json!({"allow": [&beside], "rules": {&at: [{}]}}));
    let program = format!("ruled, listed = '{at}', '{beside}'\n{CERTIFICATES}");
    let result = attack(&workspace, &program);
    let lines = printed(&result);
    assert_eq!(lines[..4], ["other name closed"; 4], "{result}");
    // The authority of the sandbox speaks for no host that has no rules, and for no other address.
    assert_eq!(lines[4..], ["proven unproven unproven 403", "200", "done"], "{result}");
    assert_eq!(host.requests(), ["GET /own"], "{result}");
    assert_eq!(reasons(&result)[..4], ["host_mismatch"; 4], "{result}");
    Ok(())
}
