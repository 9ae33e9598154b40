//! `--wait`: what a command does about an image that others use.

use std::time::Duration;

use extant::rooms::device::FileDeviceOptions;

/// The option, for every command that takes an image for itself.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Waiting {
    /// Wait while the image is in use (locked or mounted): up to SECONDS, or without limit
    #[arg(long = "wait", value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
}

impl Waiting {
    /// The options with the time to wait. A server of ours that still closes the volume after
    /// umount(8) is waited for in any case.
    pub(crate) fn on(self, options: FileDeviceOptions) -> FileDeviceOptions {
        options.wait(self.wait.unwrap_or_default()).wait_while(extant::rooms::mount::is_closing)
    }

    /// The option as it is given to another process.
    pub(crate) fn word(self) -> Option<String> {
        let wait = self.wait?;
        Some(match wait {
            Duration::MAX => "--wait".to_owned(),
            wait => format!("--wait={}", wait.as_secs()),
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    extant::rooms::image::mkfs::wait_of(text)
        .ok_or_else(|| format!("invalid number of seconds '{text}'"))
}
