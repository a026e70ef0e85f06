//! PKCS#12 as Java's trust stores use it: certificates without keys, neither encrypted nor with a checksum
//! by a password, since they are public. Java reads such a store with any password and with none.

use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTF16_STRING: u8 = 0x1e;
/// `[0] EXPLICIT`.
const CONTEXT_0: u8 = 0xa0;

/// 1.2.840.113549.1.7.1: plain data.
const DATA: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
/// 1.2.840.113549.1.12.10.1.3: a bag with a certificate.
const CERTIFICATE_BAG: [u8; 11] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1, 3];
/// 1.2.840.113549.1.9.22.1: a certificate of X.509.
const X509: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 22, 1];
/// 1.2.840.113549.1.9.20: the name of an entry.
const FRIENDLY_NAME: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 20];
/// 2.16.840.1.113894.746875.1.1: what Java takes a certificate for trusted by, and for what.
const TRUSTED_FOR: [u8; 12] = [0x60, 0x86, 0x48, 0x01, 0x86, 0xf9, 0x66, 0xad, 0xca, 0x7b, 1, 1];
/// 2.5.29.37.0: every use.
const ANY_USE: [u8; 4] = [0x55, 0x1d, 0x25, 0];

/// Returns a store in which each of `certificates` is trusted.
pub fn key_store(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let bags: Vec<Vec<u8>> = certificates.iter().enumerate().map(bag).collect();
    let safe = value(SEQUENCE, &bags);
    let safes = value(SEQUENCE, &[content(&safe)]);
    value(SEQUENCE, &[value(INTEGER, &[vec![3]]), content(&safes)])
}

/// Whether `file` is a store that [`key_store`] made, and no text.
pub fn is_key_store(file: &[u8]) -> bool {
    file.first() == Some(&SEQUENCE)
}

/// Returns the certificates of a store that [`key_store`] made.
pub fn stored_certificates(store: &[u8]) -> Vec<CertificateDer<'static>> {
    let of_certificate = value(OBJECT, &[X509.to_vec()]);
    let mut found = Vec::new();
    let mut rest = store;
    while let Some(at) = position(rest, &of_certificate) {
        let held = rest.get(at + of_certificate.len()..).unwrap_or_default();
        let octets = inner(held, CONTEXT_0).and_then(|explicit| inner(explicit, OCTET_STRING));
        let Some(certificate) = octets else { break };
        found.push(CertificateDer::from(certificate.to_vec()));
        rest = held.get(certificate.len()..).unwrap_or_default();
    }
    found
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The contents of the value with `tag` at the start of `der`.
fn inner(der: &[u8], tag: u8) -> Option<&[u8]> {
    let (_, rest) = der.split_first().filter(|(first, _)| **first == tag)?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(*length) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (digits, rest) = rest.split_at_checked(long - 0x80)?;
            let length = digits.iter().fold(0_usize, |all, byte| (all << 8) | usize::from(*byte));
            (length, rest)
        }
    };
    rest.get(..length)
}

/// Plain data.
fn content(data: &[u8]) -> Vec<u8> {
    let octets = value(OCTET_STRING, &[data.to_vec()]);
    value(SEQUENCE, &[value(OBJECT, &[DATA.to_vec()]), value(CONTEXT_0, &[octets])])
}

fn bag((number, certificate): (usize, &CertificateDer<'_>)) -> Vec<u8> {
    let octets = value(OCTET_STRING, &[certificate.to_vec()]);
    let held = value(SEQUENCE, &[value(OBJECT, &[X509.to_vec()]), value(CONTEXT_0, &[octets])]);
    let name = format!("cofferdam-{number}");
    let name = name.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let attributes = [
        attribute(FRIENDLY_NAME.to_vec(), value(UTF16_STRING, &[name])),
        attribute(TRUSTED_FOR.to_vec(), value(OBJECT, &[ANY_USE.to_vec()])),
    ];
    value(
        SEQUENCE,
        &[
            value(OBJECT, &[CERTIFICATE_BAG.to_vec()]),
            value(CONTEXT_0, &[held]),
            value(SET, &attributes),
        ],
    )
}

fn attribute(kind: Vec<u8>, of_kind: Vec<u8>) -> Vec<u8> {
    value(SEQUENCE, &[value(OBJECT, &[kind]), value(SET, &[of_kind])])
}

/// A value of DER: its tag, the length, and the parts one after the other.
fn value(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let length: usize = parts.iter().map(Vec::len).sum();
    let mut der = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => der.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let significant: Vec<u8> =
                bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
            // At most eight.
            der.push(0x80 | u8::try_from(significant.len()).unwrap_or(8));
            der.extend(significant);
        }
    }
    der.reserve(length);
    parts.iter().for_each(|part| der.extend_from_slice(part));
    der
}
