//! Buckets of S3.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;

use super::connection::options;
use super::error::RemoteError;
use super::profile::Profile;

/// With one of these the environment has a key, or says that none is needed.
const KEYS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"];
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

fn is_any_set(names: &[&str]) -> bool {
    names.iter().any(|name| env::var_os(name).is_some())
}

/// Whether neither the environment nor the user's profile has a key: servers that give one to
/// machines of a cloud are asked then.
pub(super) fn is_without_key() -> bool {
    let has_none = |profile: Profile| matches!(profile.key(), Ok(None));
    !is_any_set(&KEYS) && Profile::of_user().is_ok_and(has_none)
}

/// A bucket. The environment comes before the user's profile.
///
/// # Errors
/// The settings are not valid.
pub(super) fn bucket(name: &str, timeout: Duration) -> Result<Arc<dyn ObjectStore>, RemoteError> {
    let profile = Profile::of_user().map_err(RemoteError::Failed)?;
    let has_key = is_any_set(&KEYS);
    let key = if has_key { None } else { profile.key().map_err(RemoteError::Failed)? };
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(name);
    if let Some((id, secret, token)) = key {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        builder = token.into_iter().fold(builder, AmazonS3Builder::with_token);
    }
    if let Some(region) = profile.region().filter(|_| !is_any_set(&REGIONS)) {
        builder = builder.with_region(region);
    }
    let mut endpoint = ENDPOINTS.iter().find_map(|name| env::var(name).ok());
    if let Some(url) = profile.endpoint().filter(|_| endpoint.is_none()) {
        builder = builder.with_endpoint(url);
        endpoint = Some(url.to_owned());
    }
    let (client, retry) = options(timeout);
    let client = client.with_allow_http(endpoint.is_some_and(|url| url.starts_with("http://")));
    Ok(Arc::new(builder.with_client_options(client).with_retry(retry).build()?))
}
