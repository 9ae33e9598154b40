//! `extant du`: the space that files of an image take, as du(1) counts it on a mount.

use std::collections::HashSet;

use extant::rooms::ondisk::InodeNo;
use extant::rooms::ondisk::inode::{FileType, InodeFlags};
use extant::rooms::reader::{Follow, LoadedInode};
use serde::Serialize;

use super::Operands;
use crate::block_unit::{Unit, UnitArgs};
use crate::failure::Failure;
use crate::output::JsonName;
use crate::reader::{Descend, Image};
use crate::session::Session;

/// Bytes of the unit of `st_blocks`.
const SECTOR: u64 = 512;

/// Show the space that files and directories take
///
/// A file with several names is counted once. Without -a or -s each directory has a line, after
/// those of what it contains.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print a line for each file too
    #[arg(short, conflicts_with = "summarize")]
    all: bool,
    /// Print only a total for each operand
    #[arg(short, conflicts_with = "max_depth")]
    summarize: bool,
    /// Print lines for at most N levels below each operand
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<u32>,
    /// Count the bytes of contents, not the space that is allocated
    #[arg(long)]
    apparent_size: bool,
    /// Same as --apparent-size -B 1
    #[arg(short = 'b', long)]
    bytes: bool,
    #[command(flatten)]
    unit: UnitArgs,
    /// Print a total of all operands
    #[arg(short = 'c', long)]
    total: bool,
    /// Print JSON, sizes in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// A line.
#[derive(Serialize)]
struct Counted {
    path: JsonName,
    bytes: u64,
}

/// A directory that the walk is in.
struct Open {
    place: Vec<u8>,
    depth: u32,
    bytes: u64,
}

/// The directories from the operand down, and the lines that are ready.
struct Counting<'a> {
    args: &'a Args,
    unit: Unit,
    open: Vec<Open>,
    /// For `--json`.
    lines: Vec<Counted>,
    /// Bytes of all operands.
    total: u64,
    /// Files with several names, and with several operands all files, of each image.
    seen: HashSet<(String, InodeNo)>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let unit = if self.bytes { Unit::bytes() } else { self.unit.unit() };
        let (open, lines, seen) = (Vec::new(), Vec::new(), HashSet::new());
        let mut counting = Counting { args: &self, unit, open, lines, total: 0, seen };
        self.operands.each_named(session, |named, session| {
            let (image, path) = (&*named.image, &named.path[..]);
            let start = image.resolve(path, Follow::No)?;
            image.walk(start, path, session, &mut |walked, session| {
                counting.close(walked.depth, session)?;
                let file = &walked.file;
                let may_recur = !named.is_only || (file.links > 1 && !file.is_dir());
                if may_recur && !counting.seen.insert((image.name().to_owned(), file.number)) {
                    return Ok(Descend::No);
                }
                let place = image.raw_place(&walked.path);
                let bytes = self.bytes_of(image, file);
                if file.is_dir() {
                    counting.open.push(Open { place, depth: walked.depth, bytes });
                    return Ok(Descend::Yes);
                }
                counting.add(bytes);
                if self.all || walked.depth == 0 {
                    counting.print(&place, walked.depth, bytes, session)?;
                }
                Ok(Descend::No)
            })?;
            counting.close(0, session)
        })?;
        let Counting { unit, lines, total, .. } = counting;
        if self.json {
            return session.out.json_array(|element| lines.iter().try_for_each(element));
        }
        if self.total {
            session.out.bytes(format!("{}\ttotal\n", unit.show(total)).as_bytes())?;
        }
        Ok(())
    }

    fn bytes_of(&self, image: &Image, file: &LoadedInode) -> u64 {
        match self.apparent_size || self.bytes {
            true => file.size,
            false => {
                // The kernel counts whole sectors of contents that lie in the inode.
                let is_inline = file.file_type() == FileType::Regular
                    && file.flags.contains(InodeFlags::INLINE_DATA);
                let inline = if is_inline { file.size.next_multiple_of(SECTOR) } else { 0 };
                file.space(image.volume.geometry()).saturating_add(inline)
            }
        }
    }

    fn is_shown(&self, depth: u32) -> bool {
        let most = if self.summarize { Some(0) } else { self.max_depth };
        most.is_none_or(|most| depth <= most)
    }
}

impl Counting<'_> {
    /// Adds to the innermost directory, or else to the total.
    fn add(&mut self, bytes: u64) {
        let sum = self.open.last_mut().map_or(&mut self.total, |open| &mut open.bytes);
        *sum = sum.saturating_add(bytes);
    }

    /// Ends the directories of `depth` and deeper.
    fn close(&mut self, depth: u32, session: &mut Session) -> Result<(), Failure> {
        while let Some(done) = self.open.pop_if(|open| open.depth >= depth) {
            self.add(done.bytes);
            self.print(&done.place, done.depth, done.bytes, session)?;
        }
        Ok(())
    }

    fn print(
        &mut self,
        place: &[u8],
        depth: u32,
        bytes: u64,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if !self.args.is_shown(depth) {
            return Ok(());
        }
        if self.args.json {
            self.lines.push(Counted { path: place.into(), bytes });
            return Ok(());
        }
        session.out.bytes(format!("{}\t", self.unit.show(bytes)).as_bytes())?;
        session.out.name(place)?;
        session.out.bytes(b"\n")
    }
}
