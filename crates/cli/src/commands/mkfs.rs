//! `extant mkfs`: formats, as mke2fs does.

use std::ffi::OsString;

use extant::rooms::image::build::mke2fs;
use extant::rooms::image::mkfs::{self, Environment, MkfsError, Options, Program};

use super::format::Format;
use crate::err_line;
use crate::failure::Failure;
use crate::parse;
use crate::session::Session;
use crate::terminal::Terminal;
use crate::waiting::Waiting;

/// mke2fs's exit code for every failure.
const FAILED: u8 = 1;

/// Make a file system, as mke2fs does; ext4 by default
///
/// If IMAGE does not exist, it is created with SIZE. The options are those of mke2fs.
#[derive(Debug, clap::Args)]
#[command(after_help = "SIZE counts blocks, or has a unit: s (512 bytes), k, M, G, T, P.")]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
    /// Check for bad blocks first; twice: with a read-write test
    #[arg(short = 'c', action = clap::ArgAction::Count)]
    check_blocks: u8,
    /// Copy a directory, or a tar archive (- is standard input), into the new file system
    #[arg(short = 'd', value_name = "root-directory|tarball")]
    source: Option<OsString>,
    /// Bypass the page cache (O_DIRECT)
    #[arg(short = 'D')]
    direct: bool,
    /// Force: overwrite an existing file system; twice: even if it is in use
    #[arg(short = 'F', action = clap::ArgAction::Count)]
    force: u8,
    /// Same as -E nodiscard
    #[arg(short = 'K')]
    keep: bool,
    /// Read the list of bad blocks from a file
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<OsString>,
    /// Last mounted directory
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<OsString>,
    /// Dry run: only print what would be done
    #[arg(short = 'n')]
    dry_run: bool,
    /// Creator operating system: Linux, Hurd, ...
    #[arg(short = 'o', value_name = "OS")]
    creator_os: Option<String>,
    /// The old spelling of -E
    #[arg(short = 'R', value_name = "OPTIONS", hide = true)]
    old_extended: Vec<String>,
    /// File system revision: 1, or 0 for one without features
    #[arg(short = 'r', value_name = "REVISION")]
    revision: Option<String>,
    /// Sparse superblocks (sparse_super): 1 for on, 0 for off
    #[arg(short = 's', value_name = "0|1")]
    sparse_super: Option<String>,
    /// Print errors only
    #[arg(short)]
    quiet: bool,
    /// Write superblock and group descriptors only
    #[arg(short = 'S')]
    super_only: bool,
    /// Print more
    #[arg(short)]
    verbose: bool,
    /// UUID of the volume, or random, time, clear
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Print version
    #[arg(short = 'V')]
    version: bool,
    /// Save overwritten blocks in an undo file, for extant undo
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    #[command(flatten)]
    waiting: Waiting,
    /// File or block device
    #[arg(value_name = "IMAGE", required_unless_present = "version")]
    image: Option<OsString>,
    /// Size of the file system
    #[arg(value_name = "SIZE")]
    size: Option<String>,
}

impl Args {
    /// The table's way in is not taken: [`run`] reads the words themselves.
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::usage("the command line of mkfs is read as mke2fs reads it").with_code(FAILED))
    }
}

/// Formats by mke2fs's command line, without the program's name.
pub(crate) fn run(
    words: impl Iterator<Item = OsString>,
    session: &mut Session,
) -> Result<(), Failure> {
    let program = Program::of_name(&session.called).unwrap_or(Program::Extant);
    let options = match Options::parse(words) {
        Ok(options) => options,
        Err(error @ MkfsError::Usage(_)) if session.is_compat => {
            let usage = parse::usage::<Args>(program.name());
            return Err(Failure::new(format_args!("{error}\n{usage}")).with_code(FAILED));
        }
        Err(error) => return Err(Failure::new(error).with_code(FAILED)),
    };
    if options.version {
        err_line!("{}", session.version());
        return Ok(());
    }
    let mut terminal = Terminal::new(session);
    let schemes = extant::schemes().clone();
    let environment = Environment { schemes, ..Environment::of_process() };
    let outcome = match options.source {
        Some(_) => mke2fs(program, options, &environment, &mut terminal).map_err(Failure::new),
        None => mkfs::run(program, options, &environment, &mut terminal).map_err(Failure::new),
    };
    terminal.close()?;
    outcome.map_err(|failure| failure.with_code(FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The table and the reader of mke2fs's command line know the same letters.
    #[test]
    fn every_letter_of_the_table_is_read_and_the_other_way_round() {
        let table = crate::table::Extant::command();
        let mkfs = table.find_subcommand("mkfs").expect("mkfs is in the table");
        let listed = mkfs.get_arguments().filter_map(clap::Arg::get_short).collect::<String>();
        for letter in (b'a'..=b'z').chain(b'A'..=b'Z').map(char::from) {
            let words = [format!("-{letter}"), "1".into(), "disk.img".into(), "1M".into()];
            let outcome = Options::parse(words.into_iter().map(OsString::from));
            let unknown = outcome.is_err_and(|error| {
                let text = error.to_string();
                text.contains("invalid option") || text.contains("has been removed")
            });
            assert_eq!(!unknown, listed.contains(letter), "-{letter}");
        }
    }
}
