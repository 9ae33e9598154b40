//! `extant touch`: times of files.

use std::path::Path;
use std::time::SystemTime;

use extant::OpenOptions;
use extant::rooms::reader::Error as Cause;

use crate::failure::Failure;
use crate::session::Session;
use crate::time;
use crate::writable_image::{ChangedFiles, In, NoMatch, WritableImage};

/// Change file times, or make empty files
///
/// A file that does not exist is created empty. Of a symbolic link its own times are changed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change the access time only
    #[arg(short = 'a')]
    accessed: bool,
    /// Change the modification time only
    #[arg(short = 'm')]
    modified: bool,
    /// Do not create files
    #[arg(short = 'c')]
    no_create: bool,
    #[arg(
        short = 'd',
        value_name = "TIME",
        allow_hyphen_values = true,
        help = "Time: @SECONDS since 1970, or 'YYYY-MM-DD[ HH:MM[:SS]]' in UTC; seconds may have a \
                fraction"
    )]
    date: Option<String>,
    #[command(flatten)]
    files: ChangedFiles,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let moment = match &self.date {
            Some(text) => {
                let moment = time::parse(text)
                    .and_then(|(seconds, nanoseconds)| time::moment(seconds, nanoseconds));
                moment.ok_or_else(|| Failure::usage(format_args!("invalid date: '{text}'")))?
            }
            None => time::now()?,
        };
        let no_match = if self.no_create { NoMatch::Ignored } else { NoMatch::Fails };
        self.files.edit_each(no_match, session, |image, path, _| self.touch(image, path, moment))
    }

    fn touch(&self, image: &WritableImage, path: &Path, moment: SystemTime) -> Result<(), Failure> {
        let is_missing = match image.fs.symlink_metadata(path) {
            Err(error) => matches!(error.cause(), Cause::NotFound),
            Ok(_) => false,
        };
        if is_missing && self.no_create {
            return Ok(());
        }
        if is_missing {
            OpenOptions::new().write(true).create_new(true).open(&image.fs, path).within(image)?;
        }
        let both = self.accessed == self.modified;
        let accessed = (both || self.accessed).then_some(moment);
        let modified = (both || self.modified).then_some(moment);
        image.fs.set_times(path, accessed, modified).within(image)
    }
}
