//! The command from its words to the formatted device: what `extant mkfs` and mke2fs do, in
//! mke2fs's order.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::undo::{self, FsOffset, UndoDevice, UndoRequest};
use extant_device::{Device, Direct, FileDevice, FileDeviceOptions, LoopBacking};
use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_offline::bad_blocks::{by_reading, by_writing};
use extant_ondisk::{GroupNo, MetadataChecksum};
use extant_storage::{Access, DeviceUrl, HostFile, Opened, Schemes, UrlError, stat_host};

use super::config::{CONFIG_VARIABLE, Config};
use super::error::{Conflict, MkfsError, SizeError, ValueError};
use super::external_journal::{self, ExternalJournal};
use super::identity::{EPOCH_VARIABLE, FAKE_TIME_VARIABLE, Identity};
use super::options::{Options, Program};
use super::params::{DeviceInfo, FsParams, params};
use super::volume::NewVolume;
use super::write::WriteRules;
use super::{bad_blocks, numbers, probe, report};

/// Settings from the process's environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The schemes that the device's name may have.
    pub schemes: Schemes,
    /// `MKE2FS_CONFIG`
    pub config: Option<PathBuf>,
    /// `MKE2FS_DEVICE_SECTSIZE`, bytes.
    pub logical_sector: Option<u32>,
    /// `MKE2FS_DEVICE_PHYS_SECTSIZE`, bytes.
    pub physical_sector: Option<u32>,
    /// `MKE2FS_FIRST_META_BG`
    pub first_meta_bg: Option<u32>,
    /// `SOURCE_DATE_EPOCH`
    pub epoch: Option<String>,
    /// `E2FSPROGS_FAKE_TIME`, which goes before it; seconds since 1970.
    pub fake_time: Option<u64>,
    /// `E2FSPROGS_UNDO_DIR`
    pub undo_dir: Option<OsString>,
}

impl Environment {
    /// Of this process.
    pub fn of_process() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let number = |name: &str| {
            let value = numbers::number(&text(name)?)?;
            u32::try_from(value).ok().filter(|value| *value != 0)
        };
        Self {
            schemes: Schemes::default(),
            config: std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from),
            undo_dir: std::env::var_os(undo::DIRECTORY_VARIABLE),
            logical_sector: number("MKE2FS_DEVICE_SECTSIZE"),
            physical_sector: number("MKE2FS_DEVICE_PHYS_SECTSIZE"),
            first_meta_bg: number("MKE2FS_FIRST_META_BG"),
            epoch: text(EPOCH_VARIABLE),
            fake_time: fake_time(),
        }
    }
}

impl Environment {
    /// The time that the variables give in place of the present, in seconds since 1970.
    fn time(&self) -> Result<Option<u64>, MkfsError> {
        Ok(self.fake_time.or(self.source_date_epoch()?))
    }

    /// The value of `SOURCE_DATE_EPOCH`.
    pub(crate) fn source_date_epoch(&self) -> Result<Option<u64>, MkfsError> {
        let parsed =
            |text: &String| text.trim().parse().map_err(|_| ValueError::Epoch(text.clone()).into());
        self.epoch.as_ref().map(parsed).transpose()
    }
}

/// The time that `E2FSPROGS_FAKE_TIME` gives, in seconds since 1970. As in e2fsprogs, 0 and
/// text that is not a number give none.
pub fn fake_time() -> Option<u64> {
    let text = std::env::var(FAKE_TIME_VARIABLE).ok()?;
    numbers::number(&text).filter(|time| *time != 0)
}

/// The output of the command, and its prompts.
pub trait Prompt {
    /// Text for standard output, lines ended.
    fn say(&mut self, text: &str);
    /// A remark for standard error.
    fn warn(&mut self, text: &str);
    /// Asks a question to which only `y` means yes; no if there is no terminal.
    fn confirm(&mut self, question: &str) -> bool;
    /// Whether there is a terminal to ask on.
    fn is_interactive(&self) -> bool {
        false
    }
}

/// Runs the command.
///
/// # Errors
/// Everything that mke2fs refuses, and failures of the device.
pub fn run(
    program: Program,
    options: Options,
    environment: &Environment,
    prompt: &mut dyn Prompt,
) -> Result<(), MkfsError> {
    if options.source.is_some() {
        return Err(MkfsError::SourceDirectory);
    }
    let command = MkfsCommand::prepare(program, options, environment, prompt)?;
    let outcome = if command.params.is_journal_device() {
        command.make_journal_device(prompt)
    } else {
        command.make_volume(prompt)
    };
    command.clean_up(&outcome);
    outcome
}

impl Options {
    /// The warning about a label that is too long for the superblock.
    pub fn label_warning(&self) -> Option<String> {
        let label = self.label.as_deref().filter(|label| label.len() > 16)?;
        let cut = String::from_utf8_lossy(&label[..16]);
        Some(format!("Warning: label too long; will be truncated to '{cut}'"))
    }
}

/// Sizes of the device, from the system and the environment. A file that is not there yet has none.
fn device_info(
    path: &Path,
    existing: &Existing,
    environment: &Environment,
) -> Result<DeviceInfo, MkfsError> {
    let failed = |source| MkfsError::Io { path: path.to_owned(), source };
    let mut info = DeviceInfo {
        size: None,
        logical_sector: 512,
        physical_sector: 512,
        first_meta_bg: environment.first_meta_bg,
    };
    if let Existing::Part { opened } = existing {
        info.size = Some(opened.device.size());
        info.logical_sector = opened.device.sector_size();
    }
    match fs::metadata(path) {
        _ if info.size.is_some() => {}
        Ok(metadata) => {
            let device = FileDevice::open(path)?;
            info.size = Some(device.size());
            info.logical_sector = device.sector_size();
            if metadata.file_type().is_block_device() {
                let bytes = rustix::fs::ioctl_blkpbszget(device.file());
                info.physical_sector = bytes.map_err(|errno| failed(errno.into()))?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    info.logical_sector = environment.logical_sector.unwrap_or(info.logical_sector);
    info.physical_sector =
        environment.physical_sector.unwrap_or(info.physical_sector).max(info.logical_sector);
    Ok(info)
}

/// The kind of the device.
enum Existing {
    /// A whole file or block device, or a file to be made.
    Whole,
    /// A partition, a slice, or a layered device: it keeps its size.
    Part {
        /// Opened once, so that the user is asked for a key once: for writing, unless nothing is
        /// written.
        opened: Opened,
    },
    /// An image in a file that is to be made.
    Missing { url: DeviceUrl },
}

impl Existing {
    fn find(options: &Options, schemes: &Schemes) -> Result<Self, MkfsError> {
        let url = DeviceUrl::parse(options.device.as_os_str(), schemes, stat_host)?;
        if !url.is_part() {
            return Ok(Self::Whole);
        }
        if url.can_be_made() && stat_host(url.path()) == HostFile::Nothing {
            return Ok(Self::Missing { url });
        }
        let access = if options.dry_run { Access::ReadOnly } else { Access::ReadWrite };
        Ok(Self::Part { opened: url.open(access, &to_write(options))? })
    }
}

/// How the device is opened to be written.
fn to_write(options: &Options) -> FileDeviceOptions {
    let direct = if options.direct_io { Direct::WherePossible } else { Direct::Off };
    let loop_backing = match options.force {
        0 => LoopBacking::Refused,
        1 => LoopBacking::Unclaimed,
        _ => LoopBacking::Written,
    };
    let open = FileDeviceOptions::new().write(true).direct(direct).loop_backing(loop_backing);
    open.wait(options.wait.unwrap_or_default())
}

/// A command whose parameters are known and whose device may be overwritten.
pub(crate) struct MkfsCommand {
    pub(crate) options: Options,
    existing: Existing,
    info: DeviceInfo,
    pub(crate) params: FsParams,
    pub(crate) identity: Identity,
    undo_dir: Option<OsString>,
    program: Program,
}

/// The device of the volume.
pub(crate) struct MkfsTarget {
    opened: Opened,
    /// Keeps what is overwritten.
    undo: Option<Arc<UndoDevice>>,
}

impl MkfsTarget {
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        match &self.undo {
            Some(undo) => undo.clone(),
            None => self.opened.device.clone(),
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.opened.is_simulated()
    }

    pub(crate) fn finish(self) -> Result<(), MkfsError> {
        if let Some(undo) = &self.undo {
            undo.finish()?;
        }
        Ok(self.opened.finish().map_err(UrlError::from)?)
    }
}

impl MkfsCommand {
    /// Finds the parameters and asks whether what is on the device may be overwritten.
    pub(crate) fn prepare(
        program: Program,
        options: Options,
        environment: &Environment,
        prompt: &mut dyn Prompt,
    ) -> Result<Self, MkfsError> {
        let config = Config::load(environment.config.as_deref())?;
        let existing = Existing::find(&options, &environment.schemes)?;
        let info = device_info(&options.device, &existing, environment)?;
        let params = params(program, &options, &config, &info)?;
        for warning in &params.warnings {
            prompt.warn(warning);
        }
        if let Some(warning) = options.label_warning() {
            prompt.warn(&warning);
        }
        let identity = Identity::new(&options, &params, environment.time()?)?;
        let of_config = || config.default_text("undo_dir").map(OsString::from);
        let undo_dir = environment.undo_dir.clone().or_else(of_config);
        let command = Self { options, existing, info, params, identity, undo_dir, program };
        command.refuse_size_beyond_device()?;
        let is_planned = command.options.dry_run && command.info.size.is_none();
        if command.is_compat() && is_planned && matches!(command.existing, Existing::Whole) {
            // mke2fs -n asks the device for its sectors: this fails, and no file is made.
            FileDevice::open(&command.options.device)?;
        }
        // By a name of e2fsprogs it overwrites, as theirs does, where there is no one to ask; with
        // -S, which leaves the files, it does not.
        let asks = command.options.super_only || prompt.is_interactive();
        if program == Program::Extant || asks {
            command.confirm_overwrite(prompt)?;
        }
        command.confirm_superblocks(prompt)?;
        Ok(command)
    }

    /// Removes the file that a failed command made: a partial image is useless.
    pub(crate) fn clean_up<E>(&self, outcome: &Result<(), E>) {
        if outcome.is_err() && self.is_made_here() {
            let path = match &self.existing {
                Existing::Missing { url } => url.path(),
                _ => &self.options.device,
            };
            // A failure to remove it is ignored.
            let _ = fs::remove_file(path);
        }
    }

    /// Whether the file was not there before.
    pub(crate) fn is_made_here(&self) -> bool {
        self.info.size.is_none() && !self.options.dry_run
    }

    pub(crate) fn offset(&self) -> u64 {
        self.params.extended.offset.unwrap_or(0)
    }

    /// Bytes from the device's start to the volume's end.
    fn end(&self) -> Result<u64, MkfsError> {
        let bytes = self.params.blocks.checked_mul(u64::from(self.params.block_size));
        bytes
            .and_then(|bytes| bytes.checked_add(self.offset()))
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or(MkfsError::Size(SizeError::File))
    }

    fn keeps_its_size(&self) -> bool {
        if matches!(self.existing, Existing::Part { .. }) {
            return true;
        }
        fs::metadata(&self.options.device).is_ok_and(|found| found.file_type().is_block_device())
    }

    fn refuse_size_beyond_device(&self) -> Result<(), MkfsError> {
        let end = self.end()?;
        match self.info.size {
            Some(size) if self.keeps_its_size() && end > size => {
                Err(SizeError::BeyondDevice { end, size }.into())
            }
            _ => Ok(()),
        }
    }

    fn confirm_overwrite(&self, prompt: &mut dyn Prompt) -> Result<(), MkfsError> {
        if self.info.size.is_none() {
            return Ok(());
        }
        let device: Arc<dyn Device> = match &self.existing {
            Existing::Part { opened } => opened.device.clone(),
            Existing::Missing { .. } => return Ok(()),
            Existing::Whole => Arc::new(FileDevice::open(&self.options.device)?),
        };
        let Some(found) = probe::probe(&device, self.offset())? else { return Ok(()) };
        let path = self.options.device.clone();
        if self.options.dry_run || self.options.force > 0 {
            if !self.options.quiet || self.options.dry_run {
                prompt.warn(&format!("{} contains {found}", path.display()));
            }
            return Ok(());
        }
        let question = format!("{} contains {found}\nProceed anyway? (y,N) ", path.display());
        if prompt.confirm(&question) { Ok(()) } else { Err(MkfsError::Occupied { path, found }) }
    }

    /// With -S files stay, and are lost if the new superblock is not the one that they had.
    fn confirm_superblocks(&self, prompt: &mut dyn Prompt) -> Result<(), MkfsError> {
        if !self.options.super_only || self.options.dry_run || self.options.force > 0 {
            return Ok(());
        }
        let path = self.options.device.clone();
        let question = format!(
            "{} may be further corrupted by superblock rewrite\nProceed anyway? (y,N) ",
            path.display()
        );
        match prompt.confirm(&question) {
            true => Ok(()),
            false => Err(MkfsError::OnlySuperblocks { path }),
        }
    }

    /// Whether blocks of the device may be discarded first.
    pub(crate) fn discards(&self, target: &MkfsTarget) -> bool {
        let is_old = self.info.size.is_some() && target.undo.is_none();
        self.params.discard && !self.options.super_only && is_old
    }

    /// The device, had exclusively; a file is made or grown to the volume's end.
    pub(crate) fn open(&self, prompt: &mut dyn Prompt) -> Result<MkfsTarget, MkfsError> {
        let end = self.end()?;
        let opened = match &self.existing {
            Existing::Part { opened } => opened.clone(),
            Existing::Missing { url } => {
                let options = to_write(&self.options).create(true).size(end);
                url.open(Access::ReadWrite, &options)?
            }
            Existing::Whole => {
                if self.is_compat() && self.info.size.is_none() {
                    let path = self.options.device.display();
                    prompt.say(&format!("Creating regular file {path}\n"));
                }
                let options = to_write(&self.options).create(self.info.size.is_none());
                let device = options.open(&self.options.device)?;
                if !device.is_block_device() && device.size() < end {
                    device.set_len(end)?;
                }
                Opened::real(Arc::new(device))
            }
        };
        let undo = match self.undo_path(&*opened.device)? {
            Some(path) => {
                if self.is_compat() {
                    let said = undo::announcement(&path, self.options.device.as_os_str());
                    prompt.say(&format!("{said}\n"));
                }
                let on_device = self.offset();
                let volume = FsOffset { on_device, in_file: opened.start + on_device };
                let device = opened.device.clone();
                let block_size = self.params.block_size;
                let kept = UndoDevice::open_for_new_volume(device, path, volume, block_size)?;
                Some(Arc::new(kept))
            }
            None => None,
        };
        Ok(MkfsTarget { opened, undo })
    }

    /// Whether a program of e2fsprogs was called by its name.
    fn is_compat(&self) -> bool {
        self.program != Program::Extant
    }

    /// The undo file. As mke2fs does, that of an automatic name is made without a request, too,
    /// where a file system of ext is overwritten and a directory is given.
    fn undo_path(&self, device: &dyn Device) -> Result<Option<PathBuf>, MkfsError> {
        let directory = self.undo_dir.as_deref();
        let is_wanted = match &self.options.undo_file {
            Some(path) if !path.as_os_str().is_empty() => return Ok(Some(path.clone())),
            Some(_) => true,
            None => {
                let is_lazy = self.params.lazy_itable_init
                    && self.params.features.checksum() != MetadataChecksum::None;
                self.is_compat()
                    && (is_lazy || self.params.force_undo)
                    && probe::is_ext_at(device, self.offset())?
            }
        };
        let request = UndoRequest {
            path: OsStr::new(""),
            directory,
            image: self.options.device.as_os_str(),
            program: "mke2fs",
            is_compat: self.is_compat(),
        };
        Ok(if is_wanted { request.path()? } else { None })
    }

    fn make_volume(&self, prompt: &mut dyn Prompt) -> Result<(), MkfsError> {
        let journal = self.external_journal()?;
        let target = if self.options.dry_run { None } else { Some(self.open(prompt)?) };
        let bad = self.bad_blocks(target.as_ref().map(MkfsTarget::device).as_deref())?;
        let mut volume = NewVolume::new(self.params.clone(), self.identity.clone(), &bad)?;
        refuse_bad_start(&volume, &bad)?;
        volume.add_special_inodes(&bad)?;
        volume.add_huge_files()?;
        if let Some(journal) = &journal {
            journal.name_in(&mut volume);
        }
        self.describe(Some(&volume), prompt);
        let Some(target) = target else { return Ok(()) };
        let rules = WriteRules {
            offset: self.offset(),
            discard: self.discards(&target),
            prezeroed: self.params.extended.assume_storage_prezeroed.unwrap_or(false),
            super_only: self.options.super_only,
            one_thread: target.is_simulated(),
        };
        volume.write_to(&*target.device(), rules)?;
        self.finish(target, journal, prompt)
    }

    /// The journal's device, where an option names one.
    pub(crate) fn external_journal(&self) -> Result<Option<ExternalJournal>, MkfsError> {
        let name = self.options.journal.device.as_deref();
        name.map(|name| external_journal::find(name, self.params.block_size)).transpose()
    }

    /// Says what is made.
    pub(crate) fn describe(&self, volume: Option<&NewVolume>, prompt: &mut dyn Prompt) {
        if self.options.quiet && !self.options.dry_run {
            return;
        }
        let verbose = self.options.verbose;
        prompt.say(&report::description(&self.params, &self.identity, volume, verbose));
    }

    /// Ends the writing of a volume and says so.
    pub(crate) fn finish(
        &self,
        target: MkfsTarget,
        journal: Option<ExternalJournal>,
        prompt: &mut dyn Prompt,
    ) -> Result<(), MkfsError> {
        target.finish()?;
        if let Some(journal) = journal {
            journal.add_user(&journal.open()?, self.identity.uuid)?;
        }
        if !self.options.quiet {
            let has_files = self.options.source.is_some();
            prompt.say(&report::done(&self.params, self.options.super_only, has_files));
            prompt.say(&report::remarks(&self.params, &self.identity));
        }
        Ok(())
    }

    fn bad_blocks(&self, device: Option<&dyn Device>) -> Result<RunSet, MkfsError> {
        let mut bad = match &self.options.bad_blocks_file {
            Some(path) => bad_blocks::read_list(path, self.params.blocks)?,
            None => RunSet::new(),
        };
        if let Some(device) = device {
            let (size, blocks) = (self.params.block_size, self.params.blocks);
            let found = match self.options.check_blocks {
                0 => RunSet::new(),
                1 => by_reading(device, self.offset(), size, blocks)?,
                _ => by_writing(device, self.offset(), size, blocks)?,
            };
            for run in found.iter() {
                bad.insert(run);
            }
        }
        if bad.count() > 0 && self.params.blocks_per_cluster() > 1 {
            return Err(Conflict::BadBlocksInClusters.into());
        }
        Ok(bad)
    }

    fn make_journal_device(&self, prompt: &mut dyn Prompt) -> Result<(), MkfsError> {
        self.describe(None, prompt);
        if self.options.dry_run {
            return Ok(());
        }
        let target = self.open(prompt)?;
        external_journal::make(&*target.device(), self.offset(), &self.params, &self.identity)?;
        target.finish()
    }
}

/// The location of the superblock and of the descriptors after it is fixed.
fn refuse_bad_start(volume: &NewVolume, bad: &RunSet) -> Result<(), MkfsError> {
    let start = leading(&volume.geometry, GroupNo(0)).blocks();
    match bad.runs_in(start.clone()).next() {
        None => Ok(()),
        Some(run) => {
            let (block, first, last) = (run.start, start.start, start.end - 1);
            Err(SizeError::BadStart { block, first, last }.into())
        }
    }
}
