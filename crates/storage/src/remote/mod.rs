//! `https://`, `http://`, `s3://`, `gs://` and `az://`: objects of servers, only read.
//!
//! Bytes come in ranges, several at the same time, each for the version of the object that was
//! opened: one that has changed is an error, and bytes of two versions are never mixed. Pages are
//! kept in memory, and on request in a file. Credentials come from the environment, and those
//! of S3 from the files of its SDKs too.

mod connection;
mod device;
mod disk_cache;
pub(crate) mod error;
mod profile;
mod s3;
mod scheme;
mod store;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extant_device::{Device, FileDevice, FileDeviceOptions};

use crate::far::{FarDevice, PAGE};
use crate::opened::Opened;
use crate::schemes::{Backend, BackendUrl, Location, OpenBackend};
use crate::url::{UrlError, UrlOptions};
use device::{Network, RemoteDevice};
use disk_cache::DiskCache;
use error::RemoteError;
pub(crate) use scheme::Scheme;
use store::Object;

/// How long a server may take for a request with its repetitions, if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An object as a URL names it.
#[derive(Debug)]
struct ObjectUrl {
    scheme: Scheme,
    cache: Option<PathBuf>,
    timeout: Duration,
}

/// An object that is there.
#[derive(Debug)]
struct OpenObject {
    device: Arc<FarDevice>,
    /// The version of the object, as bytes.
    identity: Vec<u8>,
}

impl Backend for Scheme {
    fn scheme(&self) -> &'static str {
        self.text()
    }

    fn location(&self) -> Location {
        Location::Remote
    }

    fn comes_last(&self) -> &'static str {
        match self {
            Self::Https => "https:// must be the innermost layer",
            Self::Http => "http:// must be the innermost layer",
            Self::S3 => "s3:// must be the innermost layer",
            Self::Gs => "gs:// must be the innermost layer",
            Self::Azure => "az:// must be the innermost layer",
        }
    }

    fn options(&self) -> &'static str {
        "cache=DIRECTORY, timeout=SECONDS"
    }

    fn read(&self, _: &str, given: &mut UrlOptions<'_>) -> Result<Arc<dyn BackendUrl>, String> {
        let cache = given.value("cache")?;
        let cache = cache.map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
        let seconds = given.number::<u32>("timeout")?;
        let timeout = seconds.map_or(TIMEOUT, |count| Duration::from_secs(count.max(1).into()));
        Ok(Arc::new(ObjectUrl { scheme: *self, cache, timeout }))
    }
}

impl ObjectUrl {
    fn open_object(&self, place: &str, object: Object) -> Result<OpenObject, RemoteError> {
        use_ring();
        let network = Network::start().map_err(|error| RemoteError::Failed(error.to_string()))?;
        let of_thread = object.clone();
        let (version, start) = network.run(async move { of_thread.open(PAGE).await })?;
        let identity = format!("{version:?}").into_bytes();
        let device = RemoteDevice::new(network, object, version, place.to_owned());
        let tag = device.version().strong_tag().map(str::to_owned);
        let mut device: Arc<dyn Device> = Arc::new(device);
        if let Some(directory) = &self.cache {
            let tag = tag.ok_or(RemoteError::NoTag)?;
            device = Arc::new(DiskCache::open(device, directory, place, &tag)?);
        }
        Ok(OpenObject { device: Arc::new(FarDevice::new(device, &start)), identity })
    }
}

/// Chooses the library of ciphers, unless the program has chosen one.
fn use_ring() {
    // An error says that one is chosen.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl BackendUrl for ObjectUrl {
    fn open(
        &self,
        path: &Path,
        options: &FileDeviceOptions,
    ) -> Result<Arc<dyn OpenBackend>, UrlError> {
        let text = path.as_os_str();
        let malformed = |problem| UrlError::Malformed { text: text.to_owned(), problem };
        let place = str::from_utf8(text.as_bytes());
        let place = place.map_err(|_| malformed("not valid UTF-8".to_owned()))?;
        let location = place.strip_prefix(self.scheme.text()).unwrap_or_default();
        use_ring();
        let object = Object::at(self.scheme, location, self.timeout).map_err(malformed)?;
        let failed = |error| UrlError::Remote { path: path.to_owned(), error };
        if options.writes() {
            return Err(failed(RemoteError::ReadOnly { scheme: self.scheme.text() }));
        }
        Ok(Arc::new(self.open_object(place, object).map_err(failed)?))
    }
}

impl OpenBackend for OpenObject {
    fn files(&self) -> Vec<Arc<FileDevice>> {
        Vec::new()
    }

    fn identity(&self) -> Vec<u8> {
        self.identity.clone()
    }

    fn device(&self) -> Result<Opened, UrlError> {
        Ok(Opened::real(self.device.clone()))
    }
}
