//! `extant defrag`: brings the blocks of files and directories together, as e4defrag does on a
//! mount.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extant::rooms::engine::Defragmented;
use extant::rooms::reader::Error as Cause;
use extant::{InodeNo, Metadata};
use serde::Serialize;

use crate::failure::{At, Failure};
use crate::image_path::{ImagePath, image_paths};
use crate::output::JsonName;
use crate::say;
use crate::session::Session;
use crate::writable_image::{In, OpenArgs, WritableImage, WritableImages};

/// Bring the blocks of files and directories together
///
/// The blocks of a file that lie in several places are copied to a longer free run, where there is
/// one, and mapped there in place of the old ones: with a journal, power loss leaves each block at
/// one place or the other. Contents, times and preallocated blocks stay. Files without extents
/// and files whose data are journalled are left as they are. Directories are packed by
/// 'extant fsck -fD'.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only count the extents of each file; nothing is changed
    #[arg(short)]
    count: bool,
    /// Print a line for each file, fragmented or not
    #[arg(short)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Image; the operands are then paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE for all of it, or IMAGE:/path: a file, or a directory with all that is in it
    #[arg(value_name = "IMAGE[:/PATH]", required_unless_present = "image")]
    files: Vec<OsString>,
    #[command(flatten)]
    open_args: OpenArgs,
}

/// A file or directory that was looked at.
#[derive(Serialize)]
struct Line {
    path: JsonName,
    extents_before: u64,
    extents_after: u64,
    blocks_moved: u64,
    /// Why it was left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<String>,
}

/// The sums of all files.
#[derive(Default)]
struct Totals {
    looked_at: u64,
    fragmented: u64,
    left: u64,
    extents_before: u64,
    extents_after: u64,
    blocks_moved: u64,
}

/// The work on the operands.
struct Work<'a> {
    args: &'a Args,
    totals: Totals,
    lines: Vec<Line>,
    /// Inodes that were looked at: one may have several names.
    seen: HashSet<(String, InodeNo)>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let files = image_paths(self.image.as_deref(), &self.files)?;
        let images = match self.count {
            true => WritableImages::in_memory(self.open_args),
            false => WritableImages::new(self.open_args, session),
        };
        let mut work = Work {
            args: &self,
            totals: Totals::default(),
            lines: Vec::new(),
            seen: HashSet::new(),
        };
        images.edit_each(&files, session, |image, inside, session| {
            work.operand(image, inside, session)
        })?;
        let Work { totals, lines, .. } = work;
        if self.json {
            return session.out.json_array(|element| lines.iter().try_for_each(element));
        }
        match totals.looked_at {
            0 => Ok(()),
            _ => totals.print(self.count, session),
        }
    }
}

impl Work<'_> {
    /// A file, or a directory with what is in it.
    fn operand(
        &mut self,
        image: &WritableImage,
        inside: &ImagePath,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let top = Path::new(&inside.path);
        let found = image.fs.symlink_metadata(top).within(image)?;
        if !found.is_dir() && !found.is_file() {
            return Err(image.failure(top, "not a file or a directory"));
        }
        let mut waiting: Vec<(PathBuf, Metadata)> = vec![(top.to_owned(), found)];
        while let Some((path, found)) = waiting.pop() {
            let is_new = self.seen.insert((inside.name.display().to_string(), found.inode()));
            if !is_new || !found.is_dir() && !found.is_file() {
                continue;
            }
            // An operand that cannot be moved is an error.
            let is_operand = path == top && !found.is_dir();
            match self.look_at(image, &path, found.inode(), is_operand, session) {
                Ok(()) => {}
                Err(failure) => session.error(failure)?,
            }
            if !found.is_dir() {
                continue;
            }
            for entry in image.fs.read_dir(&path).within(image)? {
                let next = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
                match next.within(image) {
                    Ok(next) => waiting.push(next),
                    Err(failure) => session.error(failure)?,
                }
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        image: &WritableImage,
        path: &Path,
        inode: InodeNo,
        is_operand: bool,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let place = image.place(path);
        let engine = image.fs.volume().engine().at(&place)?;
        let runs = engine.count_runs(inode).at(&place)?;
        let still = Defragmented { runs_before: runs, runs_after: runs, moved: 0 };
        let (done, left) = match self.args.count || runs < 2 {
            true => (still, None),
            false => match engine.defragment(inode) {
                Ok(done) => (done, None),
                Err(Cause::NotSupported(what)) if !is_operand => {
                    (still, Some(format!("not supported: {what}")))
                }
                Err(error) => return Err(Failure::at(&place, error)),
            },
        };
        self.totals.add(&done, left.is_some());
        let Defragmented { runs_before, runs_after, moved } = done;
        if self.args.json {
            self.lines.push(Line {
                path: JsonName::from(place.as_bytes()),
                extents_before: runs_before,
                extents_after: runs_after,
                blocks_moved: moved,
                left,
            });
            return Ok(());
        }
        match (left, self.args.count) {
            (Some(why), _) if self.args.verbose => say!(session, "{place}: {why}"),
            (None, true) if self.args.verbose || runs_before > 1 => {
                say!(session, "{place}: extents: {runs_before}")
            }
            (None, false) if self.args.verbose || moved > 0 => {
                say!(session, "{place}: extents: {runs_before} -> {runs_after}")
            }
            _ => Ok(()),
        }
    }
}

impl Totals {
    fn add(&mut self, done: &Defragmented, is_left: bool) {
        self.looked_at += 1;
        self.fragmented += u64::from(done.runs_before > 1);
        self.left += u64::from(is_left);
        self.extents_before += done.runs_before;
        self.extents_after += done.runs_after;
        self.blocks_moved += done.moved;
    }

    fn print(&self, is_count: bool, session: &mut Session) -> Result<(), Failure> {
        let Self { looked_at, fragmented, left, extents_before, extents_after, blocks_moved } =
            self;
        say!(session, "{looked_at} files and directories, {fragmented} of them fragmented")?;
        if *left > 0 {
            say!(session, "{left} not supported")?;
        }
        match is_count {
            true => say!(session, "{extents_before} extents"),
            false => say!(
                session,
                "extents: {extents_before} -> {extents_after}, {blocks_moved} blocks moved"
            ),
        }
    }
}
