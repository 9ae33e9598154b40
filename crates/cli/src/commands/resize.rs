//! `extant resize`: gives a volume another size in place, as resize2fs does.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use extant::rooms::device::{Device, FileDeviceOptions, block_devices};
use extant::rooms::image::resize::{
    Bit64, Resize, ResizeError, ResizeProgress, ResizeStep, VolumeSize, needs_check, size_for,
};
use extant::rooms::mount;
use extant::rooms::offline::read_primary_superblock;
use extant::rooms::ondisk::IncompatFeatures;
use extant::rooms::ondisk::superblock::RawSuperblock;
use extant::rooms::storage::partition::{PartitionError, grow_last, size_needed};
use extant::rooms::storage::{Access, DeviceUrl, Opened, Part, stat_host};

use super::undo;
use crate::failure::Failure;
use crate::journal_device;
use crate::session::Session;
use crate::waiting::Waiting;
use crate::{err_line, say};

const MIB: u64 = 1 << 20;
/// Size of a page in bytes, whose multiple a volume is that takes all of its device.
const PAGE: u64 = 4096;

/// Grow or shrink a volume in place, as resize2fs does
#[derive(Debug, clap::Args)]
#[command(
    after_help = "SIZE is a number of blocks of the file system, or of sectors (s), KiB (K), MiB (M), GiB (G) or TiB (T). \
    Without it the volume takes all of the file or device. A file is made longer or shorter with the volume. \
    A volume that is mounted grows while it is in use: IMAGE is its mount point, or the image that extant mount was given."
)]
pub(crate) struct Args {
    /// Print moves: the sum of 2 (blocks), 4 (inodes), 8 (bitmaps and inode tables), 16 (times of
    /// the steps) and 32 (the minimum size)
    #[arg(short = 'd', value_name = "FLAGS")]
    debug: Option<OsString>,
    /// Resize a volume that was not checked since its last mount
    #[arg(short)]
    force: bool,
    /// Write out the buffers of the device first
    #[arg(short = 'F')]
    flush: bool,
    /// Shrink to the minimum size
    #[arg(short = 'M', conflicts_with = "size")]
    to_minimum: bool,
    /// Print the minimum size; the image is not written
    #[arg(short = 'P')]
    print_minimum: bool,
    /// Print what is done
    #[arg(short)]
    progress: bool,
    /// Switch 64bit on: group descriptors of 64 bytes
    #[arg(short = 'b')]
    to_64bit: bool,
    /// Switch 64bit off: group descriptors of 32 bytes
    #[arg(short = 's')]
    from_64bit: bool,
    /// Give the journal this size in MiB, as size=64; without SIZE the volume keeps its own
    #[arg(short = 'J', value_name = "size=MIB", conflicts_with_all = ["print_minimum", "to_64bit", "from_64bit"])]
    journal: Option<OsString>,
    /// First let the partition reach to the end of the image file: the last one of a GPT, named as
    /// in disk.img#p2
    #[arg(long)]
    grow_partition: bool,
    /// RAID stride in blocks, by which bitmaps of new groups are placed
    #[arg(short = 'S', value_name = "BLOCKS")]
    stride: Option<u32>,
    /// Save overwritten blocks in an undo file, for extant undo
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    #[command(flatten)]
    waiting: Waiting,
    /// File or block device, or where it is mounted
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// New size
    #[arg(value_name = "SIZE")]
    size: Option<OsString>,
}

/// The longest volume whose file can be opened: file offsets have 63 bits.
const LONGEST: u64 = i64::MAX as u64 / 2;

/// The name of a mounted volume in a refusal.
const VOLUME: &str = "volume";
const SHRINKS_MOUNTED: &str = "on-line shrinking not supported";

/// The flags of `-d`.
const BLOCK_MOVES: u32 = 2;
const INODE_MOVES: u32 = 4;
const TABLE_MOVES: u32 = 8;
const TIMES: u32 = 16;
const MINIMUM: u32 = 32;

/// Prints the passes of `-p`, with resize2fs's names, and what `-d` asks for.
#[derive(Debug)]
struct Passes {
    shows_passes: bool,
    debug: u32,
    start: Instant,
}

impl Passes {
    fn has(&self, flag: u32) -> bool {
        self.debug & flag != 0
    }
}

impl ResizeProgress for Passes {
    fn begin(&self, step: ResizeStep, count: u64) {
        if self.has(TIMES) {
            err_line!("{step:?}: begins after {:.2} s", self.start.elapsed().as_secs_f64());
        }
        if !self.shows_passes {
            return;
        }
        let (pass, name) = match step {
            ResizeStep::AddGroups => (1, "Extending the inode table"),
            ResizeStep::MoveBlocks => (2, "Relocating blocks"),
            ResizeStep::MoveInodes => (3, "Scanning inode table"),
            ResizeStep::MoveTables => (4, "Moving inode table"),
        };
        err_line!("Begin pass {pass} (max = {count})");
        err_line!("{name}");
    }

    fn move_blocks(&self, run: Range<u64>, to: u64) {
        if self.has(BLOCK_MOVES) {
            err_line!("Moving {} blocks {}->{to}", run.end - run.start, run.start);
        }
    }

    fn move_inode(&self, old: u32, new: u32) {
        if self.has(INODE_MOVES) {
            err_line!("Inode moved {old}->{new}");
        }
    }

    fn move_table(&self, group: u32, from: u64, to: u64) {
        if self.has(TABLE_MOVES) {
            err_line!("Table of group {group} moved {from}->{to}");
        }
    }
}

/// The image as it is named and opened.
struct Image<'a> {
    url: DeviceUrl,
    options: FileDeviceOptions,
    name: &'a Path,
}

impl Image<'_> {
    fn open(&self, access: Access) -> Result<Opened, Failure> {
        self.url.open(access, &self.options).map_err(Failure::new)
    }

    /// The image with another length in bytes.
    fn open_with_length(&self, bytes: u64) -> Result<Opened, Failure> {
        let options = self.options.clone().size(bytes);
        self.url.open(Access::ReadWrite, &options).map_err(Failure::new)
    }

    /// The length in bytes of the file that the image, a part of it or a layer on it, lies in.
    fn length_below(&self) -> Option<u64> {
        let [Part { path, .. }] = &self.url.parts[..] else { return None };
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|found| found.len())
    }

    /// Cuts the file that the image lies in to this length, if it is longer.
    fn cut_below(&self, length: Option<u64>) -> Result<(), Failure> {
        let Some(length) = length.filter(|length| self.length_below() > Some(*length)) else {
            return Ok(());
        };
        let below = DeviceUrl::plain(self.url.path().to_owned());
        let options = self.options.clone().size(length);
        below
            .open(Access::ReadWrite, &options)
            .map_err(Failure::new)?
            .finish()
            .map_err(Failure::new)
    }

    /// Whether the image is a file that can be made longer or shorter.
    fn is_file(&self) -> bool {
        self.url.is_whole() && fs::metadata(self.url.path()).is_ok_and(|found| found.is_file())
    }
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if session.is_compat {
            err_line!("{}", session.version());
        }
        self.debug_flags(session.is_compat)?;
        if Path::new(&self.image).is_dir() {
            return self.grow_in_use(Path::new(&self.image), session);
        }
        let url =
            DeviceUrl::parse(&self.image, extant::schemes(), stat_host).map_err(Failure::new)?;
        let name = Path::new(&self.image);
        let image = Image {
            url,
            options: self.waiting.on(FileDeviceOptions::new().around_cache(true)),
            name,
        };
        if image.url.is_whole() && block_devices::is_kernel_ext_mount(image.url.path()) {
            return self.grow_mounted(&image, session);
        }
        if image.url.is_whole()
            && let Some(point) = mount::point_of(image.url.path())
        {
            return self.grow_in_use(&point, session);
        }
        if let [Part { path, .. }] = &image.url.parts[..]
            && !image.url.is_whole()
            && let Some(point) = mount::point_of(path).filter(|_| !self.print_minimum)
        {
            let (path, point) = (path.display(), point.display());
            return Err(Failure::at(
                name,
                format_args!("in use: {path} is mounted on {point}: name the mount point"),
            ));
        }
        if let Some(option) = self.bars_growth().filter(|_| self.grow_partition) {
            return Err(Failure::usage(format_args!(
                "--grow-partition, {option}: mutually exclusive"
            )));
        }
        // `--grow-partition` has an error of its own.
        if !session.is_compat && !self.grow_partition {
            journal_device::refuse_other_content(name, &*image.open(Access::ReadOnly)?.device)?;
        }
        if self.print_minimum {
            return self.print_minimum(&image, session);
        }
        if self.grow_partition {
            self.grow_partition(&image, session)?;
        }
        if self.to_64bit || self.from_64bit {
            return self.set_64bit(&image, session);
        }
        if self.journal.is_some() && self.undo.is_some() && (self.size.is_some() || self.to_minimum)
        {
            let what = "-J, -z: mutually exclusive where the size changes too: use two commands";
            return Err(Failure::usage(what));
        }
        let Some(megabytes) = self.journal_size()? else {
            return self.resize(&image, session);
        };
        if self.size.is_none() && !self.to_minimum {
            return self.set_journal(&image, megabytes, session);
        }
        // The larger journal needs the room of growth, and a smaller volume that of the old one.
        if !self.to_minimum && self.is_growth(&image, session.is_compat)? {
            self.resize(&image, session)?;
            return self.set_journal(&image, megabytes, session);
        }
        self.set_journal(&image, megabytes, session)?;
        self.resize(&image, session)
    }

    /// The size of `-J` in MiB.
    fn journal_size(&self) -> Result<Option<u32>, Failure> {
        let Some(text) = &self.journal else { return Ok(None) };
        let size = text.to_str().and_then(|text| text.strip_prefix("size="));
        match size.and_then(|size| size.parse().ok()).filter(|size| *size > 0) {
            Some(size) => Ok(Some(size)),
            None => Err(Failure::usage(format_args!(
                "-J {}: not a size of the journal (expected size=MIB)",
                text.display()
            ))),
        }
    }

    /// Whether the volume gets larger.
    fn is_growth(&self, image: &Image<'_>, is_compat: bool) -> Result<bool, Failure> {
        let opened = image.open(Access::ReadOnly)?;
        let at = |error: ResizeError| failure(error, image.name, is_compat);
        let size = VolumeSize::of(&*opened.device).map_err(at)?;
        Ok(self.wanted(&*opened.device, size)? > size.blocks)
    }

    fn set_journal(
        &self,
        image: &Image<'_>,
        megabytes: u32,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let opened = image.open(Access::ReadWrite)?;
        let size = VolumeSize::of(&*opened.device)
            .map_err(|error| failure(error, image.name, session.is_compat))?;
        let changed =
            self.change(&opened, image, session, |resize| resize.set_journal_size(megabytes));
        let finished = opened.finish().map_err(Failure::new);
        let blocks = changed.and_then(|blocks| finished.map(|()| blocks))?;
        let (name, unit) = (image.name.display(), size.block_size / 1024);
        say!(session, "The journal on {name} is now {blocks} ({unit}k) blocks long.")
    }

    /// The first option that does not go with a partition that grows: an undo file would not have
    /// the table, and the others do not make the volume longer.
    fn bars_growth(&self) -> Option<&'static str> {
        let options = [
            (self.print_minimum, "-P"),
            (self.to_minimum, "-M"),
            (self.to_64bit, "-b"),
            (self.from_64bit, "-s"),
            (self.undo.is_some(), "-z"),
            (self.journal.is_some() && self.size.is_none(), "-J"),
        ];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    /// The flags of `-d`; resize2fs takes what is not a number as 0.
    fn debug_flags(&self, is_compat: bool) -> Result<u32, Failure> {
        let Some(flags) = &self.debug else { return Ok(0) };
        match flags.to_str().and_then(|flags| flags.parse().ok()) {
            Some(flags) => Ok(flags),
            None if is_compat => Ok(0),
            None => Err(Failure::usage(format_args!("-d {}: invalid number", flags.display()))),
        }
    }

    /// Lets the partition reach to the end of its file, which is made longer if SIZE needs it.
    fn grow_partition(&self, image: &Image<'_>, session: &mut Session) -> Result<(), Failure> {
        let ([Part { path, partition: Some(number), run: None }], []) =
            (&image.url.parts[..], &image.url.layers[..])
        else {
            let what = "--grow-partition: IMAGE is not a partition: name one, as in disk.img#p2";
            return Err(Failure::usage(what));
        };
        refuse_block_device(path)?;
        let at = |error: PartitionError| Failure::at(path, error);
        let wanted = self.bytes_wanted(image, session.is_compat)?;
        let whole = DeviceUrl::plain(path.clone());
        let open = |options: &FileDeviceOptions| {
            whole.open(Access::ReadWrite, options).map_err(Failure::new)
        };
        let mut disk = open(&image.options)?;
        let needed = size_needed(&*disk.device, *number, wanted).map_err(at)?;
        if needed > disk.device.size() {
            drop(disk);
            disk = open(&image.options.clone().size(needed.next_multiple_of(MIB)))?;
        }
        let is_longer = grow_last(&*disk.device, *number).map_err(at)?;
        disk.finish().map_err(Failure::new)?;
        match is_longer {
            true => say!(session, "Partition {number} reaches to the end of {}.", path.display()),
            false => Ok(()),
        }
    }

    /// The bytes that the partition is to have at least. All that refuses the growth of the volume
    /// is looked at first: the table is not changed for a volume that stays as it is.
    fn bytes_wanted(&self, image: &Image<'_>, is_compat: bool) -> Result<u64, Failure> {
        let opened = image.open(Access::ReadOnly)?;
        let at = |error: ResizeError| failure(error, image.name, is_compat);
        let size = VolumeSize::of(&*opened.device).map_err(at)?;
        self.refuse_unchecked(&*opened.device, image, is_compat)?;
        if self.size.is_none() {
            return Ok(0);
        }
        let wanted = self.wanted(&*opened.device, size)?;
        if wanted < size.blocks {
            let least = size.blocks;
            return Err(at(ResizeError::TooSmall { blocks: wanted, least }));
        }
        let blocks = size_for(&*opened.device, wanted).map_err(at)?;
        let bytes = blocks.checked_mul(u64::from(size.block_size));
        bytes.filter(|bytes| *bytes <= LONGEST).ok_or_else(|| {
            let most = LONGEST / u64::from(size.block_size);
            at(ResizeError::TooLarge { blocks, most })
        })
    }

    fn print_minimum(&self, image: &Image<'_>, session: &mut Session) -> Result<(), Failure> {
        let opened = image.open(Access::ReadOnly)?;
        // resize2fs has its estimate of the superblock: it must be right.
        if session.is_compat {
            self.refuse_unchecked(&*opened.device, image, true)?;
        }
        let blocks = self.minimum(&opened, image, session)?;
        say!(session, "Estimated minimum size of the filesystem: {blocks}")
    }

    fn minimum(
        &self,
        opened: &Opened,
        image: &Image<'_>,
        session: &Session,
    ) -> Result<u64, Failure> {
        let options = image.options.clone();
        let (journal, _) = journal_device::of(&*opened.device, &options)?;
        let resize = Resize::new(&opened.device, &opened.env);
        let resize = Resize { journal: journal.as_deref(), ..resize };
        let blocks =
            resize.minimum().map_err(|error| failure(error, image.name, session.is_compat))?;
        if self.debug_flags(session.is_compat)? & MINIMUM != 0 {
            err_line!("{blocks} blocks fit, and {} do not", blocks.saturating_sub(1));
        }
        Ok(blocks)
    }

    /// Switches 64bit on (-b) or off (-s).
    fn set_64bit(&self, image: &Image<'_>, session: &mut Session) -> Result<(), Failure> {
        let is_on = self.to_64bit;
        let option = if is_on { "-b" } else { "-s" };
        let opened = image.open(Access::ReadWrite)?;
        let is_compat = session.is_compat;
        let at = |error: ResizeError| failure(error, image.name, is_compat);
        let raw = read_primary_superblock(&*opened.device)
            .map_err(|error| Failure::at(image.name, error))?;
        let features = raw.features().incompat;
        self.refuse_unchecked(&*opened.device, image, is_compat)?;
        if is_on && self.from_64bit {
            return Err(match session.is_compat {
                true => Failure::new("Cannot set and unset 64bit feature."),
                false => Failure::usage("-b, -s: mutually exclusive"),
            });
        }
        for (is_given, what) in [(self.size.is_some(), "SIZE"), (self.to_minimum, "-M")] {
            if is_given && !session.is_compat {
                return Err(Failure::usage(format_args!("{option}, {what}: mutually exclusive")));
            }
            if is_given {
                err_line!("{what} is ignored: {option} keeps the size");
            }
        }
        let bits = if is_on { 64 } else { 32 };
        let is_change = features.contains(IncompatFeatures::BIT64) != is_on;
        let lacks_extents = is_on && !features.contains(IncompatFeatures::EXTENTS);
        if is_change && !lacks_extents {
            say!(session, "Converting the filesystem to {bits}-bit.")?;
            session.out.flush()?;
        }
        let changed = self.change(&opened, image, session, |resize| resize.set_64bit(is_on))?;
        let size = VolumeSize::of(&*opened.device).map_err(at)?;
        opened.finish().map_err(Failure::new)?;
        if changed == Bit64::Already {
            err_line!("The filesystem is already {bits}-bit.");
            return Ok(());
        }
        let (name, unit) = (image.name.display(), size.block_size / 1024);
        say!(session, "The filesystem on {name} is now {} ({unit}k) blocks long.\n", size.blocks)
    }

    fn resize(&self, image: &Image<'_>, session: &mut Session) -> Result<(), Failure> {
        let opened = image.open(Access::ReadWrite)?;
        if self.flush {
            opened.device.flush().map_err(Failure::new)?;
        }
        let at = |error: ResizeError| failure(error, image.name, session.is_compat);
        let size = VolumeSize::of(&*opened.device).map_err(at)?;
        self.refuse_unchecked(&*opened.device, image, session.is_compat)?;
        let wanted = match self.to_minimum {
            true => self.minimum(&opened, image, session)?,
            false => self.wanted(&*opened.device, size)?,
        };
        let unit = size.block_size / 1024;
        if wanted == size.blocks {
            tell_already(session, wanted, unit)?;
            return opened.finish().map_err(Failure::new);
        }
        let blocks = size_for(&*opened.device, wanted).map_err(at)?;
        let held = opened.device.size();
        let bytes = blocks * u64::from(size.block_size);
        let is_longer = bytes > held;
        if is_longer && image.url.is_whole() && !image.is_file() {
            let held = held / u64::from(size.block_size);
            return Err(Failure::new(format_args!(
                "The containing partition (or device) is only {held} ({unit}k) blocks.\nYou requested a new size of {wanted} blocks.\n"
            )));
        }
        let opens_longer = is_longer && image.is_file();
        let before = image.length_below();
        // A part of an image may end within it, and gets longer with its image otherwise.
        if blocks > size.blocks && !opens_longer {
            opened.device.grow(bytes).map_err(|error| {
                Failure::at(image.name, format_args!("the device cannot grow: {error}"))
            })?;
        }
        say!(
            session,
            "Resizing the filesystem on {} to {wanted} ({unit}k) blocks.",
            image.name.display()
        )?;
        session.out.flush()?;
        let opened = if opens_longer {
            drop(opened);
            image.open_with_length(bytes)?
        } else {
            opened
        };
        let outcome = self.change(&opened, image, session, |resize| resize.to(blocks));
        let finished = opened.finish().map_err(Failure::new);
        match outcome.and_then(|blocks| finished.map(|()| blocks)) {
            Ok(blocks) => {
                let bytes = blocks * u64::from(size.block_size);
                // The undo file does not have the part that is cut off.
                if bytes < held && image.is_file() && self.undo.is_none() {
                    image.open_with_length(bytes)?.finish().map_err(Failure::new)?;
                }
                say!(
                    session,
                    "The filesystem on {} is now {blocks} ({unit}k) blocks long.\n",
                    image.name.display()
                )
            }
            Err(failure) => {
                if is_longer && is_size(image, size) {
                    image.cut_below(before)?;
                }
                Err(failure)
            }
        }
    }

    /// Refuses a volume that should be checked first; by the name resize2fs, as there, also one
    /// whose journal waits or that has a list of orphans.
    fn refuse_unchecked(
        &self,
        device: &dyn Device,
        image: &Image<'_>,
        is_compat: bool,
    ) -> Result<(), Failure> {
        let at = |error: ResizeError| failure(error, image.name, is_compat);
        if self.force {
            return Ok(());
        }
        let waits = || -> Result<bool, Failure> {
            let raw = read_primary_superblock(device).map_err(|error| at(error.into()))?;
            let has_orphans = raw.s_last_orphan.get() != 0;
            Ok(has_orphans || raw.features().incompat.contains(IncompatFeatures::RECOVER))
        };
        match needs_check(device).map_err(at)? || is_compat && waits()? {
            true => Err(at(ResizeError::NeedsCheck)),
            false => Ok(()),
        }
    }

    /// Refuses options that a mounted volume does not have.
    fn check_mounted(&self, name: &Path, what: &str) -> Result<(), Failure> {
        let refused = [
            (self.to_64bit, "-b"),
            (self.from_64bit, "-s"),
            (self.to_minimum, "-M"),
            (self.print_minimum, "-P"),
            (self.stride.is_some(), "-S"),
            (self.undo.is_some(), "-z"),
            (self.journal.is_some(), "-J"),
            (self.grow_partition && what != VOLUME, "--grow-partition"),
        ];
        match refused.iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => {
                Err(Failure::at(name, format_args!("{option}: the {what} is mounted")))
            }
            None => Ok(()),
        }
    }

    /// Grows a volume that is mounted by `extant mount`.
    fn grow_in_use(&self, point: &Path, session: &mut Session) -> Result<(), Failure> {
        let image = Path::new(&self.image);
        self.check_mounted(image, VOLUME)?;
        let mut held = mount::mounted_size(point).map_err(Failure::new)?;
        let at = point.canonicalize().unwrap_or_else(|_| point.to_owned());
        let entry = mount::mount_at(&at).ok().flatten();
        let source = entry.map_or_else(|| image.to_owned(), |entry| entry.source);
        let size = VolumeSize { block_size: held.block_size, blocks: held.blocks };
        let refuse_smaller = |wanted: u64| match wanted < size.blocks {
            true => Err(Failure::at(image, SHRINKS_MOUNTED)),
            false => Ok(wanted),
        };
        if self.grow_partition {
            refuse_block_device(&source)?;
            let wanted = match self.size {
                Some(_) => refuse_smaller(self.wanted_of(held.device, size)?)?,
                None => 0,
            };
            let before = held.device;
            let bytes = wanted.saturating_mul(u64::from(size.block_size));
            held = mount::extend_partition(point, bytes).map_err(Failure::new)?;
            if held.device > before {
                say!(session, "The partition reaches to the end of {}.", source.display())?;
            }
        }
        let (wanted, unit) = (self.wanted_of(held.device, size)?, size.block_size / 1024);
        if wanted == size.blocks {
            return tell_already(session, wanted, unit);
        }
        refuse_smaller(wanted)?;
        let name = if image.is_dir() { &source } else { image }.display();
        let at = at.display();
        say!(session, "Filesystem at {name} is mounted on {at}; on-line resizing required")?;
        session.out.flush()?;
        let grown = mount::grow(point, wanted).map_err(Failure::new)?;
        say!(session, "The filesystem on {name} is now {} ({unit}k) blocks long.\n", grown.blocks)
    }

    /// Lets the kernel grow a device that it has mounted.
    fn grow_mounted(&self, image: &Image<'_>, session: &mut Session) -> Result<(), Failure> {
        self.check_mounted(image.name, "device")?;
        let read = || {
            let options = image.options.clone().claimed(true);
            image.url.open(Access::ReadOnly, &options).map_err(Failure::new)
        };
        let at = |error: ResizeError| failure(error, image.name, session.is_compat);
        let opened = read()?;
        let size = VolumeSize::of(&*opened.device).map_err(at)?;
        let wanted = self.wanted(&*opened.device, size)?;
        let held = opened.device.size() / u64::from(size.block_size);
        let unit = size.block_size / 1024;
        if wanted == size.blocks {
            return tell_already(session, wanted, unit);
        }
        if wanted < size.blocks {
            return Err(Failure::at(image.name, SHRINKS_MOUNTED));
        }
        if wanted > held {
            return Err(Failure::new(format_args!(
                "The containing partition (or device) is only {held} ({unit}k) blocks.\nYou requested a new size of {wanted} blocks.\n"
            )));
        }
        let path = image.url.path();
        let point = block_devices::grow_kernel_mount(path, wanted).map_err(|error| {
            Failure::at(image.name, format_args!("the kernel cannot grow the volume: {error}"))
        })?;
        let blocks = VolumeSize::of(&*read()?.device).map_err(at)?.blocks;
        let (name, point) = (image.name.display(), point.display());
        say!(session, "Filesystem at {name} is mounted on {point}; on-line resizing required")?;
        say!(session, "The filesystem on {name} is now {blocks} ({unit}k) blocks long.\n")
    }

    /// The size asked for, in blocks.
    fn wanted(&self, device: &dyn Device, size: VolumeSize) -> Result<u64, Failure> {
        self.wanted_of(device.size(), size)
    }

    /// The same, on a device of this number of bytes.
    fn wanted_of(&self, device: u64, size: VolumeSize) -> Result<u64, Failure> {
        if let Some(text) = &self.size {
            let parsed = text.to_str().and_then(|text| size.parse(text));
            let wrong = || Failure::new(format_args!("Invalid new size: {}\n", text.display()));
            return parsed.ok_or_else(wrong);
        }
        let block = u64::from(size.block_size);
        let held = device / block;
        Ok(held - held % (PAGE / block).max(1))
    }

    fn change<T>(
        &self,
        opened: &Opened,
        image: &Image<'_>,
        session: &mut Session,
        change: impl Fn(&Resize<'_>) -> Result<T, ResizeError>,
    ) -> Result<T, Failure> {
        let options = image.options.clone().write(true);
        let (journal, why) = journal_device::of(&*opened.device, &options)?;
        let is_compat = session.is_compat;
        let passes = Passes {
            shows_passes: self.progress,
            debug: self.debug_flags(is_compat)?,
            start: Instant::now(),
        };
        let run = |device: &Arc<dyn Device>| {
            let resize = Resize {
                journal: journal.as_deref(),
                force: self.force,
                stride: self.stride,
                progress: Some(&passes),
                ..Resize::new(device, &opened.env)
            };
            change(&resize).map_err(|error| {
                let missing = match &error {
                    ResizeError::Journal(error) => {
                        let why = why.as_ref().filter(|_| error.wants_device()).unwrap_or(error);
                        journal_device::missing(image.name, why)
                    }
                    _ => None,
                };
                missing.unwrap_or_else(|| failure(error, image.name, is_compat))
            })
        };
        let path = undo::announced_path(self.undo.as_deref(), &self.image, "resize2fs", session)?;
        let Some(path) = path else { return run(&opened.device) };
        let kept = Arc::new(undo::keep(opened, path)?);
        let device: Arc<dyn Device> = kept.clone();
        let outcome = run(&device);
        let finished = match &outcome {
            Ok(_) => kept.finish(),
            Err(_) => kept.finish_refused(),
        };
        outcome.and_then(|done| finished.map(|()| done).map_err(Failure::new))
    }
}

/// Refuses to change a partition table that the kernel uses.
fn refuse_block_device(path: &Path) -> Result<(), Failure> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let what =
            "--grow-partition: not a file: the kernel would not see the new table (use growpart)";
        return Err(Failure::at(path, what));
    }
    Ok(())
}

/// Whether the volume still has this size, and no log would give it another.
fn is_size(image: &Image<'_>, size: VolumeSize) -> bool {
    let Ok(opened) = image.open(Access::ReadOnly) else { return false };
    let waits = |raw: RawSuperblock| raw.features().incompat.contains(IncompatFeatures::RECOVER);
    read_primary_superblock(&*opened.device).is_ok_and(|raw| !waits(raw))
        && VolumeSize::of(&*opened.device).is_ok_and(|now| now == size)
}

/// The failure of a resize, in resize2fs's words where scripts may read them.
fn failure(error: ResizeError, name: &Path, is_compat: bool) -> Failure {
    match error {
        ResizeError::NeedsCheck if is_compat => {
            let name = name.display();
            Failure::new(format_args!("Please run 'e2fsck -f {name}' first.\n"))
        }
        ResizeError::NoExtents if is_compat => Failure::new(
            "Please enable the extents feature with tune2fs before enabling the 64bit feature.",
        ),
        ResizeError::TooSmall { least, .. } if is_compat => {
            Failure::new(format_args!("New size smaller than minimum ({least})\n"))
        }
        error => Failure::at(name, error),
    }
}

/// Says that nothing is to be done: by the name resize2fs on standard error, as there.
fn tell_already(session: &mut Session, blocks: u64, unit: u32) -> Result<(), Failure> {
    let what =
        format!("The filesystem is already {blocks} ({unit}k) blocks long.  Nothing to do!\n");
    if session.is_compat {
        err_line!("{what}");
        return Ok(());
    }
    say!(session, "{what}")
}
