//! `extant debugfs`: a volume looked into and changed request by request, as debugfs does it.

mod attributes;
mod bits;
mod checks;
mod dump;
mod edit;
mod fields;
mod free_space;
mod host;
mod image;
mod index;
mod init_filesys;
mod inodes;
mod input;
mod journal;
mod list;
mod maps;
mod modify;
mod names;
mod navigate;
mod options;
mod place;
mod raw;
mod records;
mod run;
mod shell;
mod stat;
mod stats;
mod super_fields;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::err_line;
use crate::failure::Failure;
use crate::session::Session;
use image::OpenRequest;
use shell::{Refusal, Shell};

/// Set to 0: end as debugfs does, which is well after most failures.
const EXIT_VARIABLE: &str = "EXTANT_DEBUGFS_EXIT";

/// Look into and change a volume request by request, as debugfs does
///
/// Without -R and -f, requests are read from standard input. 'list_requests' shows them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Open for changes
    #[arg(short)]
    writable: bool,
    /// Catastrophic mode: leave the bitmaps alone, read only
    #[arg(short)]
    catastrophic: bool,
    /// Ignore checksums of metadata
    #[arg(short = 'n')]
    ignore_checksums: bool,
    /// Bypass the page cache
    #[arg(short = 'D')]
    direct: bool,
    /// Block size in bytes that the volume must have
    #[arg(short, value_name = "BLOCKSIZE")]
    block_size: Option<String>,
    /// Use the superblock in this block; needs -b
    #[arg(short, value_name = "SUPERBLOCK")]
    superblock: Option<String>,
    /// Run the requests of a file, one a line; '-' is standard input
    #[arg(short = 'f', value_name = "FILE")]
    script: Option<PathBuf>,
    /// Run one request
    #[arg(short = 'R', value_name = "REQUEST")]
    request: Option<OsString>,
    /// Keep what is overwritten in an undo file
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    /// Refused: files made by e2image
    #[arg(short = 'i', hide = true)]
    image_file: bool,
    /// Refused: the device of a file made by e2image
    #[arg(short = 'd', value_name = "DEVICE", hide = true)]
    data_source: Option<OsString>,
    /// Print version
    #[arg(short = 'V')]
    version: bool,
    /// Image
    #[arg(value_name = "IMAGE")]
    image: Option<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.version {
            err_line!("{}", session.version());
            return Ok(());
        }
        if session.is_compat {
            err_line!("{}", session.version());
        }
        for (letter, is_given) in [('i', self.image_file), ('d', self.data_source.is_some())] {
            if is_given {
                let why = format_args!("-{letter}: not supported: files made by e2image");
                return Err(Failure::new(why));
            }
        }
        let request = self.open_request(session.is_compat)?;
        let mut shell = Shell::new(session);
        if let Some(image) = &self.image
            && let Err(refusal) = navigate::open_image(&mut shell, image, &request)
        {
            shell.report(refusal)?;
        }
        let outcome = match (&self.request, &self.script) {
            (Some(line), _) => shell.run_line(line.as_encoded_bytes(), false),
            (None, Some(path)) => input::script(&mut shell, path),
            (None, None) => input::standard_input(&mut shell),
        };
        if let Some(image) = shell.image.take()
            && let Err(failure) = image.close()
        {
            shell.report(Refusal::Line(format!("debugfs: {failure}")))?;
        }
        outcome?;
        let is_ours = std::env::var_os(EXIT_VARIABLE).is_none_or(|value| value != "0");
        let is_typed = self.request.is_none() && self.script.is_none();
        let has_failed = match is_ours {
            true => shell.failures > 0,
            false => shell.unknown > 0 && !is_typed,
        };
        if has_failed { Err(Failure::silent(1)) } else { Ok(()) }
    }

    fn open_request(&self, is_compat: bool) -> Result<OpenRequest, Failure> {
        let number = |text: &Option<String>, name: &str| match text {
            None => Ok(None),
            Some(text) => words::number(text.as_bytes())
                .map(Some)
                .ok_or_else(|| Failure::new(format_args!("Bad {name} - {text}"))),
        };
        let block_size = number(&self.block_size, "block size")?;
        Ok(OpenRequest {
            is_writable: self.writable,
            is_catastrophic: self.catastrophic,
            ignores_checksums: self.ignore_checksums,
            forces: false,
            is_direct: self.direct,
            block_size: block_size.map(|size| u32::try_from(size).unwrap_or(u32::MAX)),
            superblock: number(&self.superblock, "superblock block number")?,
            undo: self.undo.clone(),
            is_compat,
        })
    }
}
