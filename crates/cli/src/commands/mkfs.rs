//! `extant mkfs`: formats, as mke2fs does.

use std::ffi::OsString;

use extant::rooms::image::mkfs::{self, Environment, Options, Program};

use super::build;
use crate::err_line;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;
use crate::waiting::Waiting;

/// mke2fs's exit code for every failure.
const FAILED: u8 = 1;

/// Make a file system, as mke2fs does: ext4 unless -t says otherwise
///
/// IMAGE is made when SIZE is given and it does not exist. The command line is read as mke2fs reads
/// it; this table serves help, man page and completions.
#[derive(Debug, clap::Args)]
#[command(after_help = "SIZE counts blocks, or has a unit: s (512 bytes), k, M, G, T, P.")]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
    /// Look for bad blocks first; twice: by writing
    #[arg(short = 'c', action = clap::ArgAction::Count)]
    check_blocks: u8,
    /// Fills the new volume from a directory or an archive, as extant build does
    #[arg(short = 'd', value_name = "SOURCE")]
    source: Option<OsString>,
    /// Write around the page cache
    #[arg(short = 'D')]
    direct: bool,
    /// Format what looks used; twice: even what is in use
    #[arg(short = 'F', action = clap::ArgAction::Count)]
    force: u8,
    /// The same as -E nodiscard
    #[arg(short = 'K')]
    keep: bool,
    /// A file with the numbers of bad blocks
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<OsString>,
    /// Where it was last mounted
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<OsString>,
    /// Say what would be done, do nothing
    #[arg(short = 'n')]
    dry_run: bool,
    /// The system that made it: Linux, Hurd, ...
    #[arg(short = 'o', value_name = "OS")]
    creator_os: Option<String>,
    /// The old spelling of -E
    #[arg(short = 'R', value_name = "OPTIONS", hide = true)]
    old_extended: Vec<String>,
    /// The file system's revision: 1, or 0 for one without features
    #[arg(short = 'r', value_name = "REVISION")]
    revision: Option<String>,
    /// Whether few groups have backups of the superblock (sparse_super): 1, or 0 for all
    #[arg(short = 's', value_name = "0|1")]
    sparse_super: Option<String>,
    /// Say nothing but errors
    #[arg(short)]
    quiet: bool,
    /// Superblock and group descriptors only
    #[arg(short = 'S')]
    super_only: bool,
    /// Say more
    #[arg(short)]
    verbose: bool,
    /// The volume's UUID, or random, time, clear
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// The version
    #[arg(short = 'V')]
    version: bool,
    /// Keep what is overwritten in a file, for extant undo
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    #[command(flatten)]
    waiting: Waiting,
    /// A file or a block device
    #[arg(value_name = "IMAGE", required_unless_present = "version")]
    image: Option<OsString>,
    /// Its size
    #[arg(value_name = "SIZE")]
    size: Option<String>,
}

/// mke2fs's options that say what the file system is like. `extant build` takes them too.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Format {
    /// Block size in bytes; -N: at least N
    #[arg(short = 'b', value_name = "BYTES", allow_hyphen_values = true)]
    block_size: Option<String>,
    /// Cluster size in bytes, with bigalloc
    #[arg(short = 'C', value_name = "BYTES")]
    cluster_size: Option<String>,
    /// What the kernel does on an error: continue, remount-ro, panic
    #[arg(short = 'e', value_name = "BEHAVIOR")]
    errors: Option<String>,
    /// Extended options, separated by commas
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Blocks in a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<String>,
    /// Groups in a flex group
    #[arg(short = 'G', value_name = "GROUPS")]
    flex_bg_size: Option<String>,
    /// Bytes for each inode
    #[arg(short = 'i', value_name = "BYTES")]
    inode_ratio: Option<String>,
    /// Inode size in bytes
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<String>,
    /// With a journal
    #[arg(short = 'j')]
    journal: bool,
    /// The journal: size=MiB, fast_commit_size=KiB, location=BLOCK, device=DEVICE
    #[arg(short = 'J', value_name = "OPTIONS")]
    journal_options: Vec<String>,
    /// The volume's label
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,
    /// Per cent of the blocks reserved for root
    #[arg(short = 'm', value_name = "PER CENT")]
    reserved_ratio: Option<String>,
    /// Number of inodes
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<String>,
    /// Features on, or with ^ off, separated by commas
    #[arg(short = 'O', value_name = "FEATURES")]
    features: Vec<String>,
    /// ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// How it will be used: small, floppy, news, largefile, ... separated by commas
    #[arg(short = 'T', value_name = "USAGE")]
    usage_types: Option<String>,
}

impl Format {
    /// The options as mke2fs would be given them.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let one = |letter, value: &Option<String>| {
            (letter, value.iter().map(OsString::from).collect::<Vec<_>>())
        };
        let many = |letter, values: &Vec<String>| {
            (letter, values.iter().map(OsString::from).collect::<Vec<_>>())
        };
        let options = [
            one("-b", &self.block_size),
            one("-C", &self.cluster_size),
            one("-e", &self.errors),
            many("-E", &self.extended),
            one("-g", &self.blocks_per_group),
            one("-G", &self.flex_bg_size),
            one("-i", &self.inode_ratio),
            one("-I", &self.inode_size),
            many("-J", &self.journal_options),
            ("-L", self.label.iter().cloned().collect()),
            one("-m", &self.reserved_ratio),
            one("-N", &self.inodes),
            many("-O", &self.features),
            one("-t", &self.fs_type),
            one("-T", &self.usage_types),
        ];
        for (letter, values) in options {
            for value in values {
                words.extend([letter.into(), value]);
            }
        }
        words.extend(self.journal.then(|| OsString::from("-j")));
        words
    }
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
    let words: Vec<OsString> = words.collect();
    let parsed = Options::parse(words.iter().cloned());
    if parsed.as_ref().is_ok_and(|options| options.version) {
        err_line!("{}", session.version());
        return Ok(());
    }
    if let Ok(options) = parsed
        && let Some(source) = options.source.clone()
    {
        return build::populate(options, &source, session).map_err(|why| why.with_code(FAILED));
    }
    let mut terminal = Terminal::new(session);
    let schemes = extant::schemes().clone();
    let environment = Environment { schemes, ..Environment::of_process() };
    let outcome = mkfs::run(program, words, &environment, &mut terminal);
    terminal.close()?;
    outcome.map_err(|error| Failure::new(error).with_code(FAILED))
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
