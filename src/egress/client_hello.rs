//! The first message of TLS, as far as it names a host.
//!
//! A tunnel is let through only once its ClientHello is whole: the bytes are held back until then, however
//! many records and segments they come in.

/// The most bytes that are held back: more than any client sends before it hears from the server.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;
const RECORD_HEADER_BYTES: usize = 5;
/// The longest record, in bytes.
const RECORD_BYTES_MAX: usize = 16 * 1024;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;

/// What the first bytes of a tunnel are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstBytes {
    /// The beginning of a ClientHello, so far.
    Incomplete,
    /// A whole ClientHello, with the name in it, if there is one, in lower case.
    Hello(Option<String>),
    /// Something else.
    NotTls,
}

/// Reads the first bytes of a tunnel.
pub fn read(bytes: &[u8]) -> FirstBytes {
    let read = match handshake(bytes) {
        Ok(Some(body)) => server_name(&body).map(FirstBytes::Hello),
        Ok(None) if bytes.len() < HELLO_BYTES_MAX => Ok(FirstBytes::Incomplete),
        Ok(None) | Err(Malformed) => Err(Malformed),
    };
    read.unwrap_or(FirstBytes::NotTls)
}

/// The bytes are no ClientHello.
#[derive(Debug, Clone, Copy)]
struct Malformed;

/// Collects the body of the ClientHello from the records at the start of `bytes`. Returns `None` if more
/// must arrive.
fn handshake(bytes: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(body) = whole_body(&message)? {
            return Ok(Some(body));
        }
        let Some((header, behind)) = rest.split_at_checked(RECORD_HEADER_BYTES) else {
            return is_record_start(rest).then_some(None).ok_or(Malformed);
        };
        if !is_record_start(header) {
            return Err(Malformed);
        }
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > RECORD_BYTES_MAX {
            return Err(Malformed);
        }
        let here = behind.get(..length).unwrap_or(behind);
        message.extend_from_slice(here);
        if here.len() < length {
            return whole_body(&message);
        }
        rest = &behind[length..];
    }
}

/// Returns whether `bytes` begin as a record of a handshake does: its kind, and a version 3.x.
fn is_record_start(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|kind| *kind == HANDSHAKE)
        && bytes.get(1).is_none_or(|major| *major == 3)
        && bytes.get(2).is_none_or(|minor| *minor <= 4)
}

/// Returns the body of the message, if it is whole.
fn whole_body(message: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Malformed);
    }
    let Some(header) = message.get(..4) else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes([0, header[1], header[2], header[3]]))
        .map_err(|_| Malformed)?;
    if length > HELLO_BYTES_MAX {
        return Err(Malformed);
    }
    Ok(message.get(4..4 + length).map(<[u8]>::to_vec))
}

/// Takes values with their lengths off the front of bytes.
struct HelloFields<'a>(&'a [u8]);

impl<'a> HelloFields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> Result<usize, Malformed> {
        Ok(self.take(bytes)?.iter().fold(0, |value, byte| (value << 8) | usize::from(*byte)))
    }

    /// A value behind a length of `bytes` bytes.
    fn sized(&mut self, bytes: usize) -> Result<HelloFields<'a>, Malformed> {
        let length = self.number(bytes)?;
        self.take(length).map(HelloFields)
    }
}

/// Returns the name in the body of a ClientHello. A second name or list of names is malformed: servers
/// could choose differently.
fn server_name(body: &[u8]) -> Result<Option<String>, Malformed> {
    let mut hello = HelloFields(body);
    // The version and the random.
    hello.take(2 + 32)?;
    // The session, the cipher suites and the compression methods.
    hello.sized(1)?;
    hello.sized(2)?;
    hello.sized(1)?;
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = hello.sized(2)?;
    if !hello.0.is_empty() {
        return Err(Malformed);
    }
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let value = extensions.sized(2)?;
        if kind == usize::from(EXTENSION_SERVER_NAME) && name.replace(host_name(value)?).is_some() {
            return Err(Malformed);
        }
    }
    Ok(name)
}

fn host_name(mut extension: HelloFields<'_>) -> Result<String, Malformed> {
    let mut names = extension.sized(2)?;
    let kind = names.number(1)?;
    let name = names.sized(2)?.0;
    if kind != usize::from(NAME_TYPE_HOST) || !names.0.is_empty() || !extension.0.is_empty() {
        return Err(Malformed);
    }
    let name = std::str::from_utf8(name).map_err(|_| Malformed)?;
    Ok(name.to_ascii_lowercase())
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sized(bytes: usize, value: &[u8]) -> Vec<u8> {
        let length = u32::try_from(value.len()).unwrap().to_be_bytes();
        [&length[4 - bytes..], value].concat()
    }

    pub fn name_extension(name: &str) -> Vec<u8> {
        let entry = [vec![0], sized(2, name.as_bytes())].concat();
        [vec![0, 0], sized(2, &sized(2, &entry))].concat()
    }

    pub fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
        let body = [
            vec![3, 3],
            vec![7; 32],
            sized(1, &[9; 32]),
            sized(2, &[0x13, 0x01]),
            sized(1, &[0]),
            sized(2, &extensions.concat()),
        ];
        [vec![1], sized(3, &body.concat())].concat()
    }

    /// Puts a message into records of up to `record_bytes`.
    pub fn records(message: &[u8], record_bytes: usize) -> Vec<u8> {
        message
            .chunks(record_bytes)
            .flat_map(|piece| [vec![22, 3, 1], sized(2, piece)].concat())
            .collect()
    }

    fn grease() -> Vec<u8> {
        [vec![0x0a, 0x0a], sized(2, &[0])].concat()
    }

    #[test]
    fn the_name_of_a_hello_is_read() {
        for (extensions, expected) in [
            (vec![name_extension("PyPI.org")], Some("pypi.org")),
            (vec![grease(), name_extension("a.example"), grease()], Some("a.example")),
            (vec![grease()], None),
            (vec![], None),
        ] {
            let message = hello(&extensions);
            for size in [1, 3, 50, 16_000] {
                let read = read(&records(&message, size));
                assert_eq!(read, FirstBytes::Hello(expected.map(str::to_owned)), "{size}");
            }
        }
        // TLS without extensions, as clients of 1999 sent it.
        let body = [vec![3, 0], vec![7; 32], vec![0], sized(2, &[0, 4]), sized(1, &[0])].concat();
        let old = records(&[vec![1], sized(3, &body)].concat(), 100);
        assert_eq!(read(&old), FirstBytes::Hello(None));
    }

    #[test]
    fn what_is_no_hello_is_not_tls_at_its_first_wrong_byte() {
        let two_names = {
            let entry = [vec![0], sized(2, b"a")].concat();
            [vec![0, 0], sized(2, &sized(2, &[entry.clone(), entry].concat()))].concat()
        };
        let other_kind = {
            let entry = [vec![1], sized(2, b"a")].concat();
            [vec![0, 0], sized(2, &sized(2, &entry))].concat()
        };
        let behind = [hello(&[])[..].to_vec(), vec![]].concat();
        let mut longer = behind.clone();
        longer[3] += 1;
        longer.push(0);
        for bytes in [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"SSH-2.0-x\r\n".to_vec(),
            b"\x00".to_vec(),
            // SSL 2, an alert, an empty record, a record that is too long, an unknown version.
            vec![0x80, 0x2e, 1, 3, 1],
            vec![21, 3, 1, 0, 2, 2, 40],
            vec![22, 3, 1, 0, 0],
            vec![22, 3, 1, 0x40, 1],
            vec![22, 2],
            vec![22, 3, 5],
            // A ServerHello, and a hello that is too long.
            records(&[2, 0, 0, 0], 10),
            records(&[1, 0, 0x40, 1], 10),
            records(&hello(&[name_extension("a"), name_extension("a")]), 1000),
            records(&hello(&[two_names]), 1000),
            records(&hello(&[other_kind]), 1000),
            records(&hello(&[vec![0, 0, 0]]), 1000),
            records(&hello(&[name_extension("a")[..7].to_vec()]), 1000),
            records(&longer, 1000),
            records(&[1, 0, 0, 1, 3], 1000),
        ] {
            assert_eq!(read(&bytes), FirstBytes::NotTls, "{bytes:?}");
        }
        // Records of one byte, which never come to an end.
        let endless = records(&hello(&[name_extension(&"a".repeat(9000))]), 1);
        assert_eq!(read(&endless[..HELLO_BYTES_MAX]), FirstBytes::NotTls);
    }

    proptest! {
        #[test]
        fn every_beginning_of_a_hello_is_incomplete(
            name in "[a-z]{1,20}", size in 1_usize..300, cut in 0_usize..600,
        ) {
            let bytes = records(&hello(&[grease(), name_extension(&name)]), size);
            let cut = cut % bytes.len();
            let expected = FirstBytes::Hello(Some(name));
            // A last record may be cut behind the message only, and this one ends with it.
            prop_assert_eq!(read(&bytes[..cut]), FirstBytes::Incomplete);
            prop_assert_eq!(read(&bytes), expected.clone());
            prop_assert_eq!(read(&[&bytes[..], b"more"].concat()), expected);
        }

        #[test]
        fn no_bytes_bring_the_reader_down(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
            size in 1_usize..300, at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            read(&bytes);
            bytes.insert(0, 1);
            read(&records(&bytes, size));
            let mut changed = records(&hello(&[grease(), name_extension("a.example")]), size);
            let at = at.index(changed.len());
            changed[at] = byte;
            read(&changed);
        }
    }
}
