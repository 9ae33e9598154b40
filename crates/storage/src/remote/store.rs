//! The stores: where objects are, and how they are asked for.

use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::connection::options;
use super::error::RemoteError;
use super::s3;
use super::scheme::Scheme;

/// An object of a store.
#[derive(Clone, Debug)]
pub(super) struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// Whether it is in S3, and the user has neither given a key nor said that it needs none.
    is_without_key: bool,
}

/// The state of an object when it was opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Version {
    pub(super) size: u64,
    /// Its ETag; a time where the server gives none.
    pub(super) tag: Option<String>,
    modified: i64,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            size: meta.size,
            tag: meta.e_tag.clone(),
            modified: meta.last_modified.timestamp_micros(),
        }
    }

    /// The tag, where equal ones mean equal bytes.
    pub(super) fn strong_tag(&self) -> Option<&str> {
        self.tag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }

    /// Whether another answer is of the same object.
    fn is_same(&self, other: &Self) -> bool {
        let is_tagged = self.tag.is_some() || other.tag.is_some();
        // A server without times is taken for one that says the moment of the answer.
        self.size == other.size
            && if is_tagged { self.tag == other.tag } else { self.modified == other.modified }
    }
}

impl Object {
    /// The object at a location, which is the text after the scheme.
    ///
    /// # Errors
    /// The location is not valid, in a sentence.
    pub(super) fn at(scheme: Scheme, location: &str, timeout: Duration) -> Result<Self, String> {
        let (host, key) = location.split_once('/').unwrap_or((location, ""));
        if host.contains('@') {
            return Err(
                "a URL with a user or a password: credentials come from the environment".to_owned()
            );
        }
        if host.is_empty() || key.is_empty() {
            return Err(format!("expected {}", scheme.form()));
        }
        let path = match scheme {
            Scheme::Http | Scheme::Https => Path::from_url_path(key),
            _ => Path::parse(key),
        };
        let path = path.map_err(|error| format!("invalid name of an object: {error}"))?;
        let store = store(scheme, host, timeout)
            .map_err(|error| format!("cannot use the store: {error}"))?;
        let is_without_key = scheme == Scheme::S3 && s3::is_without_key();
        Ok(Self { store, path, is_without_key })
    }

    /// The first bytes of the object, and its version.
    pub(super) async fn open(&self, length: u64) -> Result<(Version, Vec<u8>), RemoteError> {
        let options =
            GetOptions { range: Some(GetRange::Bounded(0..length)), ..Default::default() };
        let found = match self.store.get_opts(&self.path, options).await {
            Ok(found) => found,
            Err(error) => return self.open_without_bytes(error.into()).await,
        };
        let version = Version::of(&found.meta);
        let bytes = found.bytes().await?;
        Ok((version, bytes.to_vec()))
    }

    /// An object without bytes has no range that could be given.
    async fn open_without_bytes(
        &self,
        error: RemoteError,
    ) -> Result<(Version, Vec<u8>), RemoteError> {
        if matches!(error, RemoteError::Failed(_))
            && let Ok(meta) = self.store.head(&self.path).await
            && meta.size == 0
        {
            return Ok((Version::of(&meta), Vec::new()));
        }
        match error {
            // The text is one of the servers that machines of a cloud get their keys from.
            RemoteError::Failed(text) if self.is_without_key => Err(RemoteError::Failed(format!(
                "{text} (no key in the environment and in ~/.aws)"
            ))),
            error => Err(error),
        }
    }

    /// A range of the object, if that is still the one that was opened.
    pub(super) async fn read(
        &self,
        range: Range<u64>,
        version: &Version,
    ) -> Result<Vec<u8>, RemoteError> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: version.strong_tag().map(str::to_owned),
            ..Default::default()
        };
        let found = self.store.get_opts(&self.path, options).await?;
        if !version.is_same(&Version::of(&found.meta)) {
            return Err(RemoteError::Changed);
        }
        let is_whole = found.range == range;
        let bytes = found.bytes().await?;
        match is_whole && bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes.to_vec()),
            false => Err(RemoteError::Failed("the server sent less than was asked for".to_owned())),
        }
    }
}

fn store(
    scheme: Scheme,
    host: &str,
    timeout: Duration,
) -> Result<Arc<dyn ObjectStore>, RemoteError> {
    let (client, retry) = options(timeout);
    Ok(match scheme {
        Scheme::S3 => s3::bucket(host, timeout)?,
        Scheme::Http | Scheme::Https => {
            let client = client.with_allow_http(scheme == Scheme::Http);
            let builder = HttpBuilder::new().with_url(format!("{}{host}", scheme.text()));
            Arc::new(builder.with_client_options(client).with_retry(retry).build()?)
        }
        Scheme::Gs => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(host);
            let mut client = client;
            if let Ok(emulator) = env::var("STORAGE_EMULATOR_HOST") {
                let is_url = emulator.contains("://");
                let url = if is_url { emulator } else { format!("http://{emulator}") };
                client = client.with_allow_http(true);
                builder =
                    builder.with_base_url(url.trim_end_matches('/')).with_skip_signature(true);
            }
            Arc::new(builder.with_client_options(client).with_retry(retry).build()?)
        }
        Scheme::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(host);
            let is_plain = env::var("AZURE_STORAGE_USE_EMULATOR").is_ok()
                || env::var("AZURE_STORAGE_ENDPOINT").is_ok_and(|url| url.starts_with("http://"));
            let client = client.with_allow_http(is_plain);
            Arc::new(builder.with_client_options(client).with_retry(retry).build()?)
        }
    })
}
