//! Connections to servers of objects, and how often a request is repeated.

use std::time::Duration;

use object_store::{ClientOptions, RetryConfig};

/// Attempts after the first one.
const RETRIES: usize = 8;
/// How long a server may take to take a connection.
const CONNECT: Duration = Duration::from_secs(15);

/// The options of a store whose requests may take so long with their repetitions.
pub(super) fn options(timeout: Duration) -> (ClientOptions, RetryConfig) {
    let client =
        ClientOptions::new().with_timeout(timeout).with_connect_timeout(CONNECT.min(timeout));
    let retry =
        RetryConfig { max_retries: RETRIES, retry_timeout: timeout, ..RetryConfig::default() };
    (client, retry)
}
