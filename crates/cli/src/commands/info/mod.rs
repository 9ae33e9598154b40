//! `extant info`: what a volume is; superblock and groups, as dumpe2fs shows them.

mod groups;
mod header;
mod summary;

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use extant::inspect::{InspectError, SuperblockChoice, VolumeSummary};
use extant::rooms::ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant::rooms::ondisk::mmp::{Mmp, MmpSequence, RawMmp};
use extant::rooms::ondisk::{
    FileBlock, Flaw, FormatError, Geometry, IncompatFeatures, InodeNo, MAX_FILE_BLOCKS,
};
use extant::rooms::reader::{Error, Journal, ReaderOptions, VolumeRead};

use crate::failure::{At, Failure};
use crate::journal_device::{self, Purpose};
use crate::named_view::{
    BAD_CHECKSUM, CORRUPT_SUPERBLOCK, Contents, NamedView, UNSUPPORTED_FEATURE,
};
use crate::session::Session;
use crate::{err_line, say};
use groups::Numbers;

/// The exit code of dumpe2fs -m and e2mmpstatus for a volume that is not safe to mount.
const MMP_FAILED: u8 = 2;

/// Show a summary, or the superblock and groups as dumpe2fs does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print superblock and groups in full, as dumpe2fs does
    #[arg(short, long)]
    all: bool,
    /// Print the list of bad blocks
    #[arg(short)]
    bad_blocks: bool,
    /// Force: ignore unknown features
    #[arg(short)]
    force: bool,
    /// Print the groups in a machine-readable form
    #[arg(short)]
    groups: bool,
    /// Print the superblock only
    #[arg(short = 'h')]
    header_only: bool,
    /// IMAGE is a file of e2image, which holds metadata alone; with -m: print the multiple mount
    /// protection block
    #[arg(short = 'i')]
    image_file: bool,
    /// Tell whether multiple mount protection lets the volume be mounted
    #[arg(short)]
    mmp: bool,
    /// Use another superblock: superblock=BLOCK, blocksize=BYTES
    #[arg(short = 'o', value_name = "SUPERBLOCK", value_delimiter = ',')]
    superblock: Vec<String>,
    /// Print block numbers of the groups in hexadecimal
    #[arg(short = 'x')]
    hexadecimal: bool,
    /// Print version
    #[arg(short = 'V')]
    version: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Image
    #[arg(value_name = "IMAGE", required_unless_present = "version")]
    image: Option<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.version {
            err_line!("{}", session.version());
            return Ok(());
        }
        // e2mmpstatus prints no version.
        if session.is_compat && session.called == "dumpe2fs" {
            err_line!("{}", session.version());
        }
        let Some(image) = self.image.as_deref() else { return Ok(()) };
        let view = self.open(image, session)?;
        let shown = match self.mmp {
            true => self.check_mmp(&view, session),
            false => self.show(&view, session),
        };
        if !session.is_compat {
            return shown;
        }
        let shown = match (shown, &view.bad_checksum) {
            (Ok(()), Some(why)) => Err(bad_superblock(&view, why)),
            (shown, Some(why)) => {
                session.error(bad_superblock(&view, why))?;
                shown
            }
            (shown, None) => shown,
        };
        let is_damaged = shown
            .as_ref()
            .is_err_and(|failure| view.bad_checksum.is_some() || groups::is_of_bitmap(failure));
        if is_damaged {
            say!(session, "*** Run e2fsck now!\n")?;
        }
        shown
    }

    fn open(&self, image: &OsStr, session: &mut Session) -> Result<NamedView, Failure> {
        if !session.is_compat {
            let view = NamedView::open_as(image, self.source()?, self.contents());
            return view.map_err(|failure| match self.mmp {
                true => failure.with_code(MMP_FAILED),
                false => failure,
            });
        }
        let source = self.source().map_err(|failure| failure.with_code(1))?;
        let source = SuperblockChoice { keeps_bad_checksum: true, ..source };
        let view =
            NamedView::open_as_dumpe2fs(image, source, self.contents()).and_then(|view| match view
                .geometry(self.force)
            {
                Err(InspectError::Format(why @ FormatError::Unsupported(_)))
                    if !view.is_journal_device() =>
                {
                    Err(Failure::at(image, why).with_code(UNSUPPORTED_FEATURE))
                }
                Err(why) if view.bad_checksum.is_some() && !view.is_journal_device() => {
                    Err(Failure::at(image, why).with_code(CORRUPT_SUPERBLOCK))
                }
                _ => Ok(view),
            });
        if view.is_err() {
            say!(session, "Couldn't find valid filesystem superblock.")?;
        }
        view
    }

    /// With -m the letter has another meaning.
    fn contents(&self) -> Contents {
        match self.image_file && !self.mmp {
            true => Contents::Metadata,
            false => Contents::Volume,
        }
    }

    fn source(&self) -> Result<SuperblockChoice, Failure> {
        let mut source = SuperblockChoice::default();
        for option in &self.superblock {
            let number = |text: &str| {
                text.parse::<u64>()
                    .map_err(|_| Failure::usage(format_args!("-o {option}: invalid number")))
            };
            match option.split_once('=') {
                Some(("superblock", text)) => source.block = Some(number(text)?),
                Some(("blocksize", text)) => {
                    let size = number(text)?;
                    let size = u32::try_from(size)
                        .ok()
                        .filter(|size| size.is_power_of_two() && (1024..=65_536).contains(size));
                    let why = || Failure::usage(format_args!("-o {option}: invalid block size"));
                    source.block_size = Some(size.ok_or_else(why)?);
                }
                _ => {
                    let known = "unknown option (expected superblock=BLOCK or blocksize=BYTES)";
                    return Err(Failure::usage(format_args!("-o {option}: {known}")));
                }
            }
        }
        Ok(source)
    }

    fn show(&self, view: &NamedView, session: &mut Session) -> Result<(), Failure> {
        if view.is_journal_device() {
            // It has neither bad blocks nor groups.
            return match (self.bad_blocks, self.groups) {
                (true, _) => session.warn("-b: a journal device has no list of bad blocks"),
                (_, true) => groups::head_for_programs(session),
                _ => self.show_journal_device(view, session),
            };
        }
        let geometry = view.geometry(self.force).at(&view.name);
        if self.json {
            return self.show_json(view, &geometry?, session);
        }
        if self.bad_blocks {
            return show_bad_blocks(view, session);
        }
        if self.groups {
            let geometry = geometry?;
            let numbers = self.numbers(&geometry);
            return groups::list_for_programs(view, &geometry, numbers, session);
        }
        if session.is_compat || self.all || self.header_only || self.hexadecimal {
            return self.show_in_full(view, geometry, session);
        }
        let geometry = geometry?;
        let raw = view.journal(Some(&geometry)).at(&view.name)?;
        let journal = raw.map(|raw| JournalSuperblock::decode(&raw)).transpose().at(&view.name)?;
        summary::show(view, &geometry, journal.as_ref(), session)
    }

    /// Of a volume in use, or without such protection, it is an error.
    fn check_mmp(&self, view: &NamedView, session: &mut Session) -> Result<(), Failure> {
        let not_safe = |failure: Failure| failure.with_code(MMP_FAILED);
        let geometry = view.geometry(self.force).at(&view.name).map_err(not_safe)?;
        let found = view.mmp(&geometry).at(&view.name).map_err(not_safe)?;
        let mmp = found.ok_or_else(|| not_safe(no_mmp(view)))?;
        if self.image_file {
            for line in header::mmp(&mmp).lines {
                say!(session, "{line}")?;
            }
            return say!(session, "    mmp_block_number: {}", view.superblock.mmp_block);
        }
        // A block that fails its checksum says nothing of hosts: theirs ends with 1 there, too.
        mmp.verify(view.superblock.mmp_block, &geometry).at(&view.name)?;
        check_mmp(view, &geometry, &mmp, session).map_err(not_safe)
    }

    /// The superblock's fields come even where nothing else can be believed.
    fn show_in_full(
        &self,
        view: &NamedView,
        geometry: Result<Geometry, Failure>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        for line in header::superblock(view).lines {
            say!(session, "{line}")?;
        }
        let geometry = geometry?;
        // A file of e2image has neither the journal nor the block of MMP.
        let is_whole = self.contents() == Contents::Volume;
        let journal = match is_whole {
            true => view.journal(Some(&geometry)).at(&view.name)?,
            false => None,
        };
        if let Some(raw) = journal {
            if let Err(FormatError::Corrupt { flaw: Flaw::Magic { .. }, .. }) = raw.verify() {
                return Err(Failure::at(&view.name, "journal superblock: invalid magic number"));
            }
            match JournalSuperblock::decode(&raw).at(&view.name) {
                Ok(journal) => {
                    for line in header::journal(&raw, &journal, view).lines {
                        say!(session, "{line}")?;
                    }
                }
                // The rest of the output does not depend on it.
                Err(failure) => session.error(failure)?,
            }
        }
        let mmp = match is_whole {
            true => view.mmp(&geometry).at(&view.name)?,
            false => None,
        };
        if let Some(mmp) = mmp {
            match mmp.verify(view.superblock.mmp_block, &geometry) {
                Ok(()) => {
                    for line in header::mmp(&mmp).lines {
                        say!(session, "{line}")?;
                    }
                }
                Err(why) => session.warn(format_args!("{}: {why}", view.name.display()))?,
            }
        }
        // A list that cannot be read leaves the rest of the output as it is.
        match bad_blocks(view) {
            Ok(list) if !list.is_empty() => {
                let mut separator = "Bad blocks: ";
                for block in list.into_iter().flatten() {
                    session.out.bytes(format!("{separator}{block}").as_bytes())?;
                    separator = ", ";
                }
                say!(session, "")?;
            }
            _ => say!(session, "")?,
        }
        if self.header_only {
            return Ok(());
        }
        say!(session, "")?;
        groups::list(view, &geometry, self.numbers(&geometry), session)
    }

    fn numbers(&self, geometry: &Geometry) -> Numbers {
        Numbers {
            is_hexadecimal: self.hexadecimal,
            is_64bit: geometry.has_incompat(IncompatFeatures::BIT64),
        }
    }

    fn show_journal_device(&self, view: &NamedView, session: &mut Session) -> Result<(), Failure> {
        let raw = view.journal(None).at(&view.name)?;
        let journal = raw.map(|raw| JournalSuperblock::decode(&raw)).transpose().at(&view.name)?;
        if self.json {
            let mut volume = VolumeSummary::new(view);
            if let Some(journal) = &journal {
                volume.add_journal(journal);
            }
            return session.out.json(&volume);
        }
        for line in header::superblock(view).lines {
            say!(session, "{line}")?;
        }
        if let (Some(raw), Some(journal)) = (raw, journal) {
            for line in header::journal(&raw, &journal, view).lines {
                say!(session, "{line}")?;
            }
        }
        Ok(())
    }

    fn show_json(
        &self,
        view: &NamedView,
        geometry: &Geometry,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let mut volume = VolumeSummary::new(view);
        volume.add_geometry(geometry);
        if let Some(raw) = view.journal(Some(geometry)).at(&view.name)? {
            volume.add_journal(&JournalSuperblock::decode(&raw).at(&view.name)?);
        }
        if !self.header_only {
            volume.add_groups(view, geometry).at(&view.name)?;
        }
        session.out.json(&volume)
    }
}

/// The failure that a superblock with a wrong checksum ends with after it was shown.
fn bad_superblock(view: &NamedView, why: &FormatError) -> Failure {
    let place = Path::new(&view.name);
    let failure = journal_device::not_a_volume(place, &*view.device, why, Purpose::Reading);
    failure.unwrap_or_else(|| Failure::at(place, why)).with_code(BAD_CHECKSUM)
}

/// The superblock's fields, as tune2fs lists them.
pub(crate) fn list_superblock(image: &OsStr, session: &mut Session) -> Result<(), Failure> {
    let view = NamedView::open(image, SuperblockChoice::default())?;
    for line in header::superblock(&view).lines {
        say!(session, "{line}")?;
    }
    Ok(())
}

/// The same of a file system; tune2fs refuses a journal device.
pub(crate) fn list_volume(image: &OsStr, session: &mut Session) -> Result<(), Failure> {
    let view = NamedView::open(image, SuperblockChoice::default())?;
    if view.is_journal_device() {
        return Err(Failure::at(image, "a journal device cannot be changed"));
    }
    superblock_lines(&view).iter().try_for_each(|line| say!(session, "{line}"))
}

/// The superblock's fields, as debugfs lists them too.
pub(crate) fn superblock_lines(view: &NamedView) -> Vec<String> {
    header::superblock(view).lines
}

/// The fields of a journal's superblock, as debugfs lists them too.
pub(crate) fn journal_lines(
    raw: &RawJournalSuperblock,
    journal: &JournalSuperblock,
    view: &NamedView,
) -> Vec<String> {
    header::journal(raw, journal, view).lines
}

/// The blocks that inode 1 maps, one a line.
fn show_bad_blocks(view: &NamedView, session: &mut Session) -> Result<(), Failure> {
    for run in bad_blocks(view)? {
        for block in run {
            say!(session, "{block}")?;
        }
    }
    Ok(())
}

/// The runs of blocks that inode 1 maps.
fn bad_blocks(view: &NamedView) -> Result<Vec<Range<u64>>, Failure> {
    let options = ReaderOptions { journal: Journal::Ignore, ..ReaderOptions::default() };
    let volume = options.open(view.device.clone()).at(&view.name)?;
    let list = match volume.any_inode(InodeNo::BAD_BLOCKS) {
        Ok(list) => list,
        Err(Error::FreeInode(_)) => return Ok(Vec::new()),
        Err(error) => return Err(Failure::at(&view.name, error)),
    };
    let mut runs = Vec::new();
    for mapping in volume.extents_in(list, FileBlock(0)..FileBlock(MAX_FILE_BLOCKS)) {
        let mapping = mapping.at(&view.name)?;
        let Some(start) = mapping.physical() else { continue };
        runs.push(start.0..start.0.saturating_add(mapping.len));
    }
    Ok(runs)
}

fn no_mmp(view: &NamedView) -> Failure {
    Failure::at(&view.name, "MMP feature not enabled.")
}

/// Whether the volume is open on a host, as shown by e2mmpstatus(8).
fn check_mmp(
    view: &NamedView,
    geometry: &Geometry,
    raw: &RawMmp,
    session: &mut Session,
) -> Result<(), Failure> {
    let name: &OsStr = &view.name;
    let sequence = |raw| Mmp::decode(raw).sequence;
    let in_use = |by: &str| {
        let node = String::from_utf8_lossy(header::until_zero(&raw.mmp_nodename)).into_owned();
        Err(Failure::at(
            name,
            format_args!("{by} on node {node}, MMP says it is not safe to mount"),
        ))
    };
    match sequence(raw) {
        MmpSequence::Fsck => return in_use("e2fsck is running"),
        MmpSequence::Mounted(_) => {
            // A mount that lives writes within its interval.
            let interval = u64::from(Mmp::decode(raw).check_interval.clamp(5, 300));
            std::thread::sleep(std::time::Duration::from_secs(2 * interval + 1));
            let again = view.mmp(geometry).at(&view.name)?;
            if again.is_none_or(|again| again.mmp_seq != raw.mmp_seq) {
                return in_use("mounted");
            }
        }
        MmpSequence::Clean => {}
    }
    say!(session, "{}: it is safe to mount '{}', MMP is clean", session.called, name.display())
}
