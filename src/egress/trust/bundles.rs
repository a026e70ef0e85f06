//! The bundles of certificates that programs read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::key_store::{is_key_store, key_store, stored_certificates};

/// Where systems keep the certificates that they trust, for programs that are told nothing.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt"];
/// The same for Java.
const JAVA_STORE: &str = "/etc/ssl/certs/java/cacerts";
/// Files of our own, which are in every sandbox with an authority: all certificates, its root alone, and all
/// for Java.
const OWN_BUNDLE: &str = "/run/cofferdam/ca-bundle.pem";
const OWN_ROOT: &str = "/run/cofferdam/ca-root.pem";
const OWN_STORE: &str = "/run/cofferdam/ca-bundle.p12";
/// Variables of programs that read one bundle, in place of the system's.
const BUNDLE_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];
/// Variables of programs that read certificates beside their own.
const ROOT_VARIABLES: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
/// Characters on a line of base64.
const LINE_CHARS: usize = 64;

/// A file that a sandbox shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFile {
    /// Its absolute path in the sandbox.
    pub path: &'static str,
    pub contents: Vec<u8>,
}

/// Returns the variables that name the bundles.
pub fn trust_environment() -> Vec<(String, String)> {
    let named = |names: &'static [&'static str], path: &'static str| {
        names.iter().map(move |name| ((*name).to_owned(), path.to_owned()))
    };
    named(&BUNDLE_VARIABLES, OWN_BUNDLE).chain(named(&ROOT_VARIABLES, OWN_ROOT)).collect()
}

/// Returns the options by which Java finds its store. It has no password, since it holds no secret.
pub fn trust_store_option() -> String {
    format!("-Djavax.net.ssl.trustStore={OWN_STORE} -Djavax.net.ssl.trustStoreType=PKCS12")
}

/// Returns the files by which programs trust `root`, if there is one, beside what they trust already. `read`
/// returns the contents of a file of the sandbox's root; `host_bundle` is for a sandbox without a bundle.
pub fn trust_files(
    root: Option<&CertificateDer<'_>>,
    read: &dyn Fn(&str) -> Option<Vec<u8>>,
    host_bundle: &dyn Fn() -> Vec<u8>,
) -> Vec<TrustFile> {
    let root_pem = root.map(|root| pem(root)).unwrap_or_default();
    let with_root = |bundle: &[u8]| with_pem(bundle, &root_pem);
    let found: Vec<_> =
        BUNDLES.into_iter().filter_map(|path| read(path).map(|bundle| (path, bundle))).collect();
    let main = found.first().map_or_else(host_bundle, |(_, bundle)| bundle.clone());
    let store = key_store(&certificates(&main, root));
    let mut files: Vec<TrustFile> = found
        .iter()
        .map(|(path, bundle)| TrustFile { path, contents: with_root(bundle) })
        .collect();
    if read(JAVA_STORE).is_some() {
        files.push(TrustFile { path: JAVA_STORE, contents: store.clone() });
    }
    files.push(TrustFile { path: OWN_BUNDLE, contents: with_root(&main) });
    files.push(TrustFile { path: OWN_ROOT, contents: root_pem.into_bytes() });
    files.push(TrustFile { path: OWN_STORE, contents: store });
    files
}

/// Returns a file of `trust_files` with the root `now` instead of `before`, if it has one.
pub fn with_other_root(
    file: &[u8],
    before: Option<&CertificateDer<'_>>,
    now: &CertificateDer<'_>,
) -> Vec<u8> {
    if !is_key_store(file) {
        let before = before.map(|root| pem(root)).unwrap_or_default();
        let known = file.strip_suffix(before.as_bytes()).unwrap_or(file);
        return with_pem(known, &pem(now));
    }
    let mut known = stored_certificates(file);
    known.retain(|certificate| Some(certificate) != before);
    known.push(now.clone().into_owned());
    key_store(&known)
}

/// `bundle` with a certificate at its end, on a line of its own.
fn with_pem(bundle: &[u8], pem: &str) -> Vec<u8> {
    let is_whole = bundle.is_empty() || bundle.ends_with(b"\n") || pem.is_empty();
    let newline: &[u8] = if is_whole { b"" } else { b"\n" };
    [bundle, newline, pem.as_bytes()].concat()
}

/// The certificates in `bundle`, and `root`. What cannot be parsed is left out.
fn certificates(bundle: &[u8], root: Option<&CertificateDer<'_>>) -> Vec<CertificateDer<'static>> {
    let known = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
    known.chain(root.map(|root| root.clone().into_owned())).collect()
}

fn pem(certificate: &[u8]) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(LINE_CHARS));
        text.push_str(line);
        text.push('\n');
        rest = behind;
    }
    text + "-----END CERTIFICATE-----\n"
}
