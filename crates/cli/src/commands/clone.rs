//! `extant clone`: the blocks of a volume that are in use, copied without the others; and
//! `e2image`.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use extant::debug::{
    BlocksToCopy, CopyContents, DebugChoice, DebugError, DebugVolume, MetadataOrigin,
};
use extant::rooms::device::{ByteSize, Device, FileDeviceOptions, SliceDevice, block_devices};
use extant::rooms::image::clone::{self, CloneError, CloneSource};
use extant::rooms::storage::{Access, DeviceUrl, HostFile, stat_host};
use serde::Serialize;

use crate::failure::{At, Failure};
use crate::image_path::open_for_reading;
use crate::journal_device::refuse_other_content;
use crate::output_file::{FileId, OutputFile};
use crate::progress::Progress;
use crate::session::Session;
use crate::{err_line, parse, say, time};

/// How often e2image's figures are printed again.
const INTERVAL: Duration = Duration::from_secs(1);

/// Copy the blocks of a volume that are in use
///
/// Free blocks are not read: a sparse file is written, or the blocks of a device are. The journal
/// is copied as it is, with the blocks that its replay has in use. A file is replaced when the copy
/// is whole; it is written in place with --offset or --skip-equal, and where TARGET names a part of
/// it, such as disk.img#p1.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Copy what describes files, and no data of files: for reports of damage
    #[arg(long)]
    metadata: bool,
    /// Format of the copy
    #[arg(long, value_name = "FORMAT", default_value = "raw")]
    format: Format,
    /// Byte of TARGET at which the copy begins; what is before and after it is kept
    #[arg(long, value_name = "BYTES")]
    offset: Option<ByteSize>,
    /// Read TARGET first, and write only the blocks that differ
    #[arg(short = 'c', long)]
    skip_equal: bool,
    /// Copy a volume that is mounted for writing: blocks of different moments are mixed
    #[arg(short, long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
    /// File or block device
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// File, block device or a part of one, or - for standard output
    #[arg(value_name = "TARGET")]
    target: OsString,
}

/// Formats of a copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Format {
    /// Each block at its place
    Raw,
    /// A qcow2 file, as QEMU reads it
    Qcow2,
}

/// The arguments of e2image.
#[derive(Debug, clap::Args)]
pub(crate) struct CompatArgs {
    /// Write a raw image
    #[arg(short = 'r')]
    raw: bool,
    /// Write a qcow2 image
    #[arg(short = 'Q')]
    qcow2: bool,
    /// Copy the data of files, too
    #[arg(short = 'a')]
    all: bool,
    /// Read the target first, and write only the blocks that differ
    #[arg(short = 'c')]
    skip_equal: bool,
    /// Copy a volume that is mounted for writing
    #[arg(short = 'f')]
    force: bool,
    /// Only print the numbers of the blocks that would be written
    #[arg(short = 'n')]
    dry_run: bool,
    /// Show progress
    #[arg(short = 'p')]
    progress: bool,
    /// Not implemented: scramble names
    #[arg(short = 's')]
    scramble: bool,
    /// Not implemented: install an image of e2image's own format
    #[arg(short = 'I')]
    install: bool,
    /// Block of the superblock
    #[arg(short = 'b', value_name = "superblock", overrides_with = "superblock")]
    superblock: Option<u64>,
    /// Block size in bytes
    #[arg(short = 'B', value_name = "blocksize", overrides_with = "block_size")]
    block_size: Option<u32>,
    /// Byte of the device at which the volume begins
    #[arg(short = 'o', value_name = "src_offset", overrides_with = "source_offset")]
    source_offset: Option<u64>,
    /// Byte of the image file at which the copy begins
    #[arg(short = 'O', value_name = "dest_offset", overrides_with = "target_offset")]
    target_offset: Option<u64>,
    /// Device, then image file
    #[arg(value_name = "device image-file")]
    operands: Vec<OsString>,
}

/// A copy to be made.
struct Job<'a> {
    source: &'a OsStr,
    /// Bytes before the volume.
    source_offset: u64,
    choice: DebugChoice,
    contents: CopyContents,
    format: Format,
    target: &'a OsStr,
    /// Where it is written in place.
    target_offset: Option<u64>,
    skips_equal: bool,
    forces: bool,
}

/// A volume to be copied.
struct OpenedSource {
    device: Arc<dyn Device>,
    block_size: u32,
    size: u64,
    list: BlocksToCopy,
}

/// The report for scripts.
#[derive(Serialize)]
struct Report {
    block_size: u32,
    /// Blocks that were copied.
    blocks: u64,
    /// Blocks of these that the target had already; with --skip-equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    equal: Option<u64>,
    /// Inodes whose blocks could be found in part only.
    damaged_inodes: Vec<u32>,
}

/// Why a volume is not copied.
enum NotCopied {
    /// It was not opened, or what it is made of cannot be found.
    Opening(DebugError),
    /// It is mounted for writing.
    Mounted,
    Failed(Failure),
}

impl From<Failure> for NotCopied {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let job = Job {
            source: &self.source,
            source_offset: 0,
            choice: DebugChoice::default(),
            contents: if self.metadata { CopyContents::Metadata } else { CopyContents::All },
            format: self.format,
            target: &self.target,
            target_offset: self.offset.map(|ByteSize(offset)| offset),
            skips_equal: self.skip_equal,
            forces: self.force,
        };
        if self.json && job.is_stream() {
            return Err(Failure::usage("--json: cannot be used with - as the target"));
        }
        if self.format == Format::Qcow2 && (job.is_in_place() || job.is_stream()) {
            let why = "--format qcow2: cannot be written in place or to standard output";
            return Err(Failure::usage(why));
        }
        let shown = Path::new(&self.source);
        let found = job.find().map_err(|why| match why {
            NotCopied::Opening(error) => {
                job.other_content().unwrap_or_else(|| Failure::at(shown, error))
            }
            NotCopied::Mounted => Failure::at(
                shown,
                "mounted for writing: a copy would mix blocks of different moments: unmount it, remount it read-only, or use --force",
            ),
            NotCopied::Failed(failure) => failure,
        })?;
        for (inode, error) in &found.list.damaged {
            session.warn(format_args!("{}: inode {inode}: {error}", shown.display()))?;
        }
        let total = found.list.blocks.count();
        let bar = match self.quiet {
            true => Progress::none(),
            false => Progress::of_items("blocks", Some(total)),
        };
        let equal = job.write(&found, &|done| bar.at(done))?;
        drop(bar);
        if self.json {
            session.out.json(&Report {
                block_size: found.block_size,
                blocks: total,
                equal: self.skip_equal.then_some(equal),
                damaged_inodes: found.list.damaged.iter().map(|(inode, _)| inode.0).collect(),
            })?;
        }
        Ok(())
    }
}

impl CompatArgs {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        err_line!("{}", session.version());
        let usage = || Failure::new(parse::usage::<Self>(&session.called));
        if self.raw && self.qcow2 {
            return Err(usage());
        }
        if self.operands.is_empty() || self.operands.len() > 2 {
            return Err(usage());
        }
        let is_own = !self.raw && !self.qcow2;
        let refusals = [
            (self.install, "-I: not implemented: the metadata of an image are not written back"),
            (self.scramble, "-s: not implemented: names are copied as they are"),
            (
                self.all && !self.raw && !self.qcow2,
                "-a option can only be used with raw or QCOW2 images.",
            ),
            (self.skip_equal && self.qcow2, "The -c option only supported in raw mode"),
            (self.progress && self.qcow2, "The -p option only supported in raw mode"),
            (is_own && self.skip_equal, "The -c option only supported in raw mode"),
            (is_own && self.progress, "The -p option only supported in raw mode"),
            (
                self.qcow2 && (self.target_offset.is_some()),
                "-O: a qcow2 image has no place in another file",
            ),
        ];
        if let Some((_, why)) = refusals.into_iter().find(|(is_asked, _)| *is_asked) {
            return Err(Failure::new(why));
        }
        let [source, target] = &self.operands[..] else {
            return Err(match self.source_offset.or(self.target_offset) {
                Some(_) => Failure::new("not implemented: a move in place: give a second file"),
                None => usage(),
            });
        };
        let job = Job {
            source,
            source_offset: self.source_offset.unwrap_or(0),
            choice: DebugChoice {
                superblock: self.superblock,
                block_size: self.block_size,
                ..DebugChoice::default()
            },
            contents: if self.all { CopyContents::All } else { CopyContents::Metadata },
            format: if self.qcow2 { Format::Qcow2 } else { Format::Raw },
            target,
            target_offset: self.target_offset,
            skips_equal: self.skip_equal,
            forces: self.force,
        };
        if is_own {
            return job.write_own(session);
        }
        if job.is_stream() && self.qcow2 {
            return Err(Failure::new("standard output: a qcow2 image needs a file"));
        }
        if self.progress {
            err_line!("Scanning inodes...");
        }
        let found = job.find().map_err(|why| not_copied(why, source, session))?;
        for (inode, error) in &found.list.damaged {
            session.warn(format_args!("inode {inode}: {error}"))?;
        }
        if self.dry_run {
            let mut out = io::stdout().lock();
            let mut tell = |block| writeln!(out, "Writing block {block}");
            let told = clone::list_clone(found.source(&|_| ()), &mut tell);
            return told.map_err(|error| not_written(source, OsStr::new("-"), error));
        }
        let new_progress = || CopyProgress::new(found.list.blocks.count(), found.block_size);
        let figures = self.progress.then(new_progress);
        let equal = job.write(&found, &|done| figures.iter().for_each(|it| it.at(done)))?;
        if let Some(figures) = figures {
            figures.close();
        }
        if self.skip_equal {
            say!(session, "{equal} blocks already contained the data to be copied")?;
        }
        Ok(())
    }
}

/// Says why a volume is not copied, as e2image does.
fn not_copied(why: NotCopied, source: &OsStr, session: &mut Session) -> Failure {
    match why {
        NotCopied::Failed(failure) => return failure,
        NotCopied::Mounted => err_line!(
            "\nRunning e2image on a R/W mounted filesystem can result in an\n\
             inconsistent image which will not be useful for debugging purposes.\n\
             Use -f option if you really want to do that."
        ),
        NotCopied::Opening(error) => {
            err_line!("{}: {error} while trying to open {}", session.called, source.display());
            if let Err(failure) = say!(session, "Couldn't find valid filesystem superblock.") {
                return failure;
            }
        }
    }
    Failure::silent(1)
}

impl Job<'_> {
    /// Writes a file of e2image's own format.
    fn write_own(&self, session: &mut Session) -> Result<(), Failure> {
        if self.is_stream() {
            return Err(Failure::new("standard output: e2image's own format needs a file"));
        }
        let opened = self.open().and_then(|device| {
            let opened = DebugVolume::open(device, &self.choice());
            opened.map_err(NotCopied::Opening)
        });
        let (mut volume, _) = opened.map_err(|why| not_copied(why, self.source, session))?;
        let target = Path::new(self.target);
        if target.exists() {
            let unused = FileDeviceOptions::new().write(true).open(target);
            drop(unused.map_err(Failure::new)?);
        }
        let new = OutputFile::create(target)?;
        let held = new.file().metadata().at(target)?;
        let source = Path::new(self.source).metadata().ok();
        let device = source.filter(|found| found.file_type().is_block_device());
        let seconds = time::now()?.duration_since(SystemTime::UNIX_EPOCH);
        let machine = rustix::system::uname();
        // The fields have 32 bits.
        let origin = MetadataOrigin {
            host: machine.nodename().to_bytes(),
            device: device.map_or(0, |found| found.rdev() as u32),
            device_name: self.source.as_bytes(),
            file_device: held.dev() as u32,
            file_inode: held.ino() as u32,
            time: seconds.map_or(0, |it| it.as_secs() as u32),
        };
        volume.write_metadata(origin, new.file()).at(target)?;
        new.keep()
    }

    fn choice(&self) -> DebugChoice {
        DebugChoice { ignores_checksums: true, forces: true, ..self.choice }
    }

    fn is_stream(&self) -> bool {
        self.target == "-"
    }

    /// Whether what the target has now is kept.
    fn is_in_place(&self) -> bool {
        self.target_offset.is_some() || self.skips_equal
    }

    /// Opens the device.
    fn open(&self) -> Result<Arc<dyn Device>, NotCopied> {
        let url = DeviceUrl::parse(self.source, extant::schemes(), stat_host);
        let url = url.map_err(Failure::new)?;
        if !self.forces && url.is_whole() && block_devices::is_mounted_for_writing(url.path()) {
            return Err(NotCopied::Mounted);
        }
        let mut device = open_for_reading(&url)?;
        if self.source_offset > 0 {
            let size = device.size().saturating_sub(self.source_offset);
            let slice = SliceDevice::new(device, self.source_offset, size);
            device = Arc::new(slice.at(self.source)?);
        }
        self.check_target(&url)?;
        Ok(device)
    }

    /// The failure that says what the source holds instead of a volume.
    fn other_content(&self) -> Option<Failure> {
        let device = self.open().ok()?;
        refuse_other_content(self.source, &*device).err()
    }

    /// Opens the volume, and finds its blocks.
    fn find(&self) -> Result<OpenedSource, NotCopied> {
        let device = self.open()?;
        let found = BlocksToCopy::find(&device, &self.choice(), self.contents);
        let (volume, list) = found.map_err(NotCopied::Opening)?;
        let geometry = volume.geometry();
        let block_size = geometry.block_size;
        Ok(OpenedSource {
            device,
            block_size,
            size: geometry.blocks_count * u64::from(block_size),
            list,
        })
    }

    /// Refuses to write over what is read.
    fn check_target(&self, url: &DeviceUrl) -> Result<(), Failure> {
        let id = |path: &Path| path.metadata().ok().map(|found| FileId::of(&found));
        let sources: Vec<FileId> = url.files_read().filter_map(id).collect();
        let target = self.target_url()?;
        let is_read = target.files_written().filter_map(id).any(|id| sources.contains(&id));
        match !self.is_stream() && is_read {
            true => Err(Failure::at(self.target, "not overwriting the image being read")),
            false => Ok(()),
        }
    }

    fn target_url(&self) -> Result<DeviceUrl, Failure> {
        DeviceUrl::parse(self.target, extant::schemes(), stat_host).map_err(Failure::new)
    }

    /// Writes the copy: how many blocks the target had already.
    fn write(&self, found: &OpenedSource, on_progress: &dyn Fn(u64)) -> Result<u64, Failure> {
        let source = found.source(on_progress);
        let failed = |error| not_written(self.source, self.target, error);
        if self.is_stream() {
            if io::stdout().is_terminal() {
                let why = "standard output: refusing to write an image to a terminal";
                return Err(Failure::usage(why));
            }
            return clone::clone_to_stream(source, &mut io::stdout().lock())
                .map(|()| 0)
                .map_err(failed);
        }
        let target = Path::new(self.target);
        let url = self.target_url()?;
        let is_file =
            !url.is_part() && target.metadata().map_or(true, |metadata| metadata.is_file());
        if is_file && !self.is_in_place() {
            // An existing file is replaced at the end; one in use is refused.
            if target.exists() {
                let unused = FileDeviceOptions::new().write(true).open(target);
                drop(unused.map_err(Failure::new)?);
            }
            let new = OutputFile::create(target)?;
            let file = new.file();
            match self.format {
                Format::Raw => clone::clone_to_new_file(source, file).map_err(failed)?,
                Format::Qcow2 => {
                    let file = file.try_clone().at(target)?;
                    clone::clone_to_qcow2(source, file).map_err(failed)?;
                }
            }
            return new.keep().map(|()| 0);
        }
        if self.format == Format::Qcow2 {
            return Err(Failure::at(target, "not a regular file: a qcow2 image needs one"));
        }
        let offset = self.target_offset.unwrap_or(0);
        if is_file {
            grow(target, offset.saturating_add(found.size)).at(target)?;
        }
        // An image in a file, where that is missing, is made as long as the copy.
        let options = match url.can_be_made() && stat_host(url.path()) == HostFile::Nothing {
            true => FileDeviceOptions::new().create(true).size(offset.saturating_add(found.size)),
            false => FileDeviceOptions::new(),
        };
        let opened = url.open(Access::ReadWrite, &options).map_err(Failure::new)?;
        let equal = clone::clone_to_device(source, &*opened.device, offset, self.skips_equal);
        let equal = equal.map_err(failed)?;
        opened.finish().map_err(Failure::new)?;
        Ok(equal)
    }
}

impl OpenedSource {
    fn source<'a>(&'a self, on_progress: &'a dyn Fn(u64)) -> CloneSource<'a> {
        CloneSource {
            device: &*self.device,
            block_size: self.block_size,
            blocks: &self.list.blocks,
            size: self.size,
            on_progress,
        }
    }
}

/// Makes a file of at least `size` bytes, or makes an existing one longer.
fn grow(path: &Path, size: u64) -> io::Result<()> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    match file.metadata()?.len() < size {
        true => file.set_len(size),
        false => Ok(()),
    }
}

fn not_written(source: &OsStr, target: &OsStr, error: CloneError) -> Failure {
    match error {
        CloneError::Target(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Failure::broken_pipe()
        }
        CloneError::Source { .. } => Failure::at(source, error),
        _ if target == "-" => Failure::at("standard output", error),
        _ => Failure::at(target, error),
    }
}

/// The figures of `e2image -p` on standard error.
struct CopyProgress {
    total: u64,
    block_size: u32,
    start: Instant,
    last: Cell<Instant>,
}

impl CopyProgress {
    fn new(total: u64, block_size: u32) -> Self {
        eprint!("Copying 0 / {total} blocks (0%)");
        let start = Instant::now();
        Self { total, block_size, start, last: Cell::new(start) }
    }

    fn at(&self, done: u64) {
        if self.last.get().elapsed() >= INTERVAL {
            self.last.set(Instant::now());
            let percent = done * 100 / self.total.max(1);
            eprint!("\rCopying {done} / {} blocks ({percent}%){}", self.total, self.speed(done));
        }
    }

    fn close(&self) {
        let (total, seconds) = (self.total, self.start.elapsed().as_secs());
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let speed = self.speed(total);
        err_line!(
            "\rCopied {total} / {total} blocks (100%) in {hours:02}:{minutes:02}:{seconds:02}{speed}        "
        );
    }

    /// ` at 1.23 MB/s`, after a second.
    fn speed(&self, done: u64) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        if seconds < 1.0 {
            return String::new();
        }
        // Rates need no more digits than a float has.
        let bytes = (done * u64::from(self.block_size)) as f64;
        format!(" at {:.2} MB/s", bytes / seconds / (1 << 20) as f64)
    }
}
