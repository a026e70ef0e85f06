//! Ways out of a sandbox that are not the proxy.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

use super::scene::{printed, reaching, run};
use crate::Unexercised;
use crate::target::Target;

pub fn every_other_way_out(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    let name = format!("cofferdam-hostile-{}", std::process::id());
    let unix = UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name).unwrap()).unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    unix.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let workspace = reaching(&client, &["localhost:*".to_owned()]);
    let program = format!(
        "def tried(kind, family, address):
    s = socket.socket(family, kind)
    s.settimeout(1)
    try:
        s.connect(address)
        s.send(b'x')
        s.recv(1)
        print('reached', address)
    except OSError:
        pass
for address in ['127.0.0.1', '127.0.0.2', '192.0.2.1', '198.51.100.1', '255.255.255.255']:
    tried(socket.SOCK_STREAM, 2, (address, {tcp_port}))
    tried(socket.SOCK_DGRAM, 2, (address, {udp_port}))
    tried(socket.SOCK_DGRAM, 2, (address, 53))
for address in ['::1', '2001:db8::1', 'fe80::1', '::ffff:192.0.2.1', 'ff02::1']:
    tried(socket.SOCK_STREAM, 10, (address, {tcp_port}))
    tried(socket.SOCK_DGRAM, 10, (address, {udp_port}))
tried(socket.SOCK_STREAM, 1, b'\\0{name}')
for family, kind in [(2, 3), (17, 3), (16, 3), (40, 1), (38, 5)]:
    try:
        socket.socket(family, kind)
        print('made', family, kind)
    except OSError:
        pass
try:
    print(socket.getaddrinfo('example.com', 80))
except OSError:
    pass
print('tried all')
"
    );
    assert_eq!(printed(&run(&workspace, &program)), ["tried all"]);
    assert!(tcp.accept().is_err() && unix.accept().is_err(), "something came");
    assert!(udp.recv(&mut [0; 1]).is_err(), "something came");
    Ok(())
}
