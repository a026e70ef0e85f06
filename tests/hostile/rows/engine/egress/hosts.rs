//! Hosts and addresses that a program asks for, and must not reach.

use std::net::Ipv4Addr;

use super::scene::{HostServer, printed, reaching, reasons, run};
use crate::Unexercised;
use crate::target::Target;

pub fn own_listeners(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let port = target.port();
    let server = HostServer::start();
    let names = ["localhost", "127.0.0.1", "127.1", "0.0.0.0", "2130706433"];
    let allow = ["localhost:*", "0.0.0.0:*", "127.0.0.0/8:*"].map(str::to_owned);
    let workspace = reaching(&client, &allow);
    let asked: String = names
        .iter()
        .map(|name| format!("print(ask(connect(), 'http://{name}:{port}/health'))\n"))
        .collect();
    let result = run(&workspace, &format!("{asked}print(ask(connect(), '{}'))\n", server.url()));
    let lines = printed(&result);
    assert!(lines[..names.len()].iter().all(|status| *status == "403"), "{result}");
    assert_eq!(lines[names.len()], "200", "{result}");
    let told = reasons(&result);
    let refused = ["own_address", "private_address"];
    assert!(told[..names.len()].iter().all(|reason| refused.contains(reason)), "{result}");
    assert_eq!(told[1], "own_address", "{result}");
    Ok(())
}

pub fn metadata_of_the_cloud(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let workspace = reaching(&client, &["127.0.0.0/8:*", "169.254.169.254:*"].map(str::to_owned));
    // Without the wall, nothing may be sent to the cloud. An address of this host is judged by the same wall, and the
    // service's own record says so: a gateway on the way could answer 403 too.
    let result = run(&workspace, "print(ask(connect(), 'http://127.0.0.3:80/'))\n");
    assert_eq!(reasons(&result), ["private_address"], "{result}");
    let result = run(
        &workspace,
        "for host in ['169.254.169.254', '0xa9fea9fe', '169.254.43518', '[::ffff:169.254.169.254]']:
    print(ask(connect(), f'http://{host}:80/latest/meta-data/'))
",
    );
    assert_eq!(printed(&result), ["403"; 4], "{result}");
    assert_eq!(reasons(&result), ["private_address"; 4], "{result}");
    Ok(())
}

pub fn name_of_the_host(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    // The name resolves to an address of the host that only a literal may name.
    let server = HostServer::at(Ipv4Addr::LOCALHOST);
    let port = server.port();
    let workspace = reaching(&client, &["localhost:*".to_owned()]);
    let program = format!(
        "for host in ['localhost', 'LOCALHOST', 'localhost.']:
    print(ask(connect(), f'http://{{host}}:{port}/'))
    print(tunnel(connect(), f'{{host}}:{port}'))
"
    );
    let result = run(&workspace, &program);
    assert_eq!(printed(&result), ["403"; 6], "{result}");
    assert_eq!(reasons(&result), ["private_address"; 6], "{result}");
    assert_eq!(server.came(), 0, "it was reached");
    Ok(())
}

pub fn addresses_in_other_spellings(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let server = HostServer::start();
    let workspace = reaching(&client, &["localhost:*".to_owned()]);
    let port = server.port();
    let program = format!(
        "for host in ['127.0.0.2', '127.2', '2130706434', '0x7f000002', '0177.0.0.2', '127.0.2', '[::ffff:127.0.0.2]', '[::ffff:7f00:2]']:
    print(ask(connect(), f'http://{{host}}:{port}/'))
    print(tunnel(connect(), f'{{host}}:{port}'))
"
    );
    let result = run(&workspace, &program);
    assert_eq!(printed(&result), ["403"; 16], "{result}");
    assert_eq!(server.came(), 0, "it was reached");
    Ok(())
}

pub fn requests_in_two_readings(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let (allowed, other) = (HostServer::start(), HostServer::start());
    let workspace = reaching(&client, &[allowed.authority()]);
    let (good, bad) = (allowed.url(), other.url());
    let (good_at, bad_at) = (allowed.authority(), other.authority());
    let program = format!(
        "import ssl
heads = [
    'GET {bad} HTTP/1.1\\r\\nHost: {good_at}\\r\\n\\r\\n',
    'GET {good} HTTP/1.1\\r\\nHost: {bad_at}\\r\\n\\r\\n',
    'GET {good} HTTP/1.1\\r\\nHost: {good_at}\\r\\nHost: {bad_at}\\r\\n\\r\\n',
    'GET http://{good_at}@{bad_at}/ HTTP/1.1\\r\\nHost: {good_at}\\r\\n\\r\\n',
    'GET http://{good_at}#@{bad_at}/ HTTP/1.1\\r\\nHost: {bad_at}\\r\\n\\r\\n',
    'GET / HTTP/1.1\\r\\nHost: {bad_at}\\r\\n\\r\\n',
    'GET {good} HTTP/1.1\\r\\nHost: {bad_at}\\r\\nContent-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET {bad} HTTP/1.1\\r\\nHost: {bad_at}\\r\\n\\r\\n',
    'GET {good} HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 0\\r\\nContent-Length: 40\\r\\n\\r\\nGET {bad} HTTP/1.1\\r\\nHost: {bad_at}\\r\\n\\r\\n',
    'CONNECT {good_at} HTTP/1.1\\r\\nHost: {bad_at}\\r\\n\\r\\nGET {bad} HTTP/1.1\\r\\n\\r\\n',
    'CONNECT {bad_at} HTTP/1.1\\r\\nHost: {good_at}\\r\\n\\r\\n',
    '\\x16\\x03\\x01' + 'x' * 300,
    'GET ' + 'x' * 20000,
]
def send_all(proxy, text):
    try:
        proxy.sendall(text)
        proxy.shutdown(socket.SHUT_WR)
        while proxy.recv(4096):
            pass
    except ConnectionError:
        pass
    proxy.close()
for head in heads:
    send_all(connect(), head.encode('latin1'))
context = ssl.create_default_context()
context.check_hostname = False
def send_hello(name):
    answers, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(answers, hello, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    proxy = connect()
    print(tunnel(proxy, '{good_at}'))
    send_all(proxy, hello.read())
send_hello('other.example')
send_hello(None)
print(ask(connect(), '{good}'))
"
    );
    let result = run(&workspace, &program);
    assert_eq!(printed(&result), ["200"; 3], "{result}");
    assert_eq!(other.came(), 0, "it was reached: {result}");
    // One tunnel whose ClientHello names no other host, and one request.
    let heard = allowed.heard();
    let is_for_another = heard.contains("other.example") || heard.contains(&bad_at);
    assert!(!is_for_another, "it was asked for another host: {heard:?}");
    let messages = ["\u{16}\u{3}\u{1}", " HTTP/1.1\r\n"].map(|part| heard.matches(part).count());
    assert_eq!(messages, [1, 1], "{heard:?}");
    Ok(())
}
