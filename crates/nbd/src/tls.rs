//! TLS: certificates as qemu, nbdkit and libnbd name them, and encrypted connections.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::NbdError;
use crate::stream::Stream;

/// The files of a directory of certificates.
const AUTHORITY: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

/// How a connection is encrypted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tls {
    /// A directory with `ca-cert.pem`, and where the server asks for a certificate
    /// `client-cert.pem` and `client-key.pem`; without it the system's authorities are trusted.
    pub certificates: Option<PathBuf>,
    /// The name that the server's certificate must have.
    pub hostname: String,
}

/// The settings of all connections to a server.
pub(crate) struct Settings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Settings {
    /// Reads the certificates.
    pub(crate) fn read(tls: &Tls) -> Result<Self, NbdError> {
        let name = ServerName::try_from(tls.hostname.clone()).map_err(|_| {
            NbdError::Certificate { what: format!("invalid host name '{}'", tls.hostname) }
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(of_library)?;
        let roots = match &tls.certificates {
            Some(directory) => authorities(&directory.join(AUTHORITY))?,
            None => of_system()?,
        };
        let builder = builder.with_root_certificates(roots);
        let own = tls
            .certificates
            .as_ref()
            .map(|directory| (directory.join(CERTIFICATE), directory.join(KEY)));
        let config = match own {
            Some((certificate, key)) if certificate.exists() => {
                let chain = certificates(&certificate)?;
                let secret =
                    PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, &error))?;
                builder.with_client_auth_cert(chain, secret).map_err(of_library)?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// Encrypts a connection whose server is about to do so.
    pub(crate) fn encrypt(&self, stream: Stream) -> Result<Stream, NbdError> {
        let session = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut session = session.map_err(of_library)?;
        let mut stream = stream;
        // The certificate is checked before anything is asked.
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Stream::encrypted(Box::new(StreamOwned::new(session, stream))))
    }
}

fn unreadable(path: &Path, error: &dyn fmt::Display) -> NbdError {
    NbdError::Certificate { what: format!("cannot read {}: {error}", path.display()) }
}

fn of_library(error: rustls::Error) -> NbdError {
    NbdError::Certificate { what: error.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NbdError> {
    let read = CertificateDer::pem_file_iter(path);
    let read = read.map_err(|error| unreadable(path, &error))?;
    read.collect::<Result<_, _>>().map_err(|error| unreadable(path, &error))
}

fn authorities(path: &Path) -> Result<RootCertStore, NbdError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unreadable(path, &error))?;
    }
    Ok(roots)
}

/// The authorities that the system trusts.
fn of_system() -> Result<RootCertStore, NbdError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(NbdError::Certificate {
            what: "the system has no trusted authorities (give tls-certificates=DIRECTORY)"
                .to_owned(),
        }),
        false => Ok(roots),
    }
}
