//! Where a volume lies: on one device, or with its journal on another.

use crate::false_positives;
use crate::volumes::Kind;
use extant_device::{Device, SliceDevice};
use extant_engine::VolumeOptions;
use extant_ondisk::GroupNo;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_reader::{Error, Journal, Reader, ReaderOptions};
use extant_sim::Recorder;
use extant_testkit::{LoopMount, TempImage, copied, e2fsck_is_silent_with, tool};
use std::ffi::OsString;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of a journal's own device.
pub(crate) const JOURNAL: u64 = 2 << 20;

/// The device of a volume, and that of its journal where it has its own.
#[derive(Clone, Debug)]
pub(crate) struct Devices {
    pub(crate) volume: Arc<dyn Device>,
    pub(crate) journal: Option<Arc<dyn Device>>,
}

impl Devices {
    /// Both on one device, the journal last.
    pub(crate) fn of(kind: Kind, whole: Arc<dyn Device>) -> Self {
        if !kind.external_journal {
            return Self { volume: whole, journal: None };
        }
        let size = whole.size() - JOURNAL;
        let part = |start, size| -> Arc<dyn Device> {
            let part = SliceDevice::new(whole.clone(), start, size);
            Arc::new(part.expect("the journal is the device's end"))
        };
        Self { volume: part(0, size), journal: Some(part(size, JOURNAL)) }
    }

    /// Two disks that are recorded together: a flush of one says nothing of the other.
    pub(crate) fn recorded(kind: Kind, recorder: &Arc<Recorder>) -> Self {
        if !kind.external_journal {
            return Self { volume: recorder.clone(), journal: None };
        }
        let size = recorder.size() - JOURNAL;
        let part = |range| -> Arc<dyn Device> {
            Arc::new(recorder.part(range).expect("the journal is the device's end"))
        };
        Self { volume: part(0..size), journal: Some(part(size..size + JOURNAL)) }
    }

    /// The volume, opened for reading.
    pub(crate) fn open(&self) -> Result<Reader, Error> {
        let journal = match &self.journal {
            Some(journal) => Journal::ReplayExternal(journal.clone()),
            None => Journal::Replay,
        };
        ReaderOptions { journal, ..ReaderOptions::default() }.open(self.volume.clone())
    }

    fn superblock(&self) -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        self.volume.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).unwrap();
        raw
    }

    /// Whether there is a second group, with a backup of the superblock.
    pub(crate) fn has_backup(&self) -> bool {
        let raw = self.superblock();
        let blocks = raw.s_blocks_count_lo.get() - raw.s_first_data_block.get();
        blocks > raw.s_blocks_per_group.get()
    }

    /// The state in the superblock; `None` where power loss or a failed write has torn it.
    pub(crate) fn state(&self) -> Option<State> {
        let raw = self.superblock();
        let is_whole = raw.verify(GroupNo(0)).is_ok();
        is_whole.then(|| State::from_bits_retain(raw.s_state.get()))
    }

    /// Options to open it for changes.
    pub(crate) fn options(&self, options: VolumeOptions) -> VolumeOptions {
        VolumeOptions { external_journal: self.journal.clone(), ..options }
    }

    /// As image files, for the tools.
    pub(crate) fn to_files(&self) -> Files {
        let journal = self.journal.as_ref().map(|journal| to_file(&**journal));
        Files { image: to_file(&*self.volume), journal }
    }
}

/// A volume in image files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) image: TempImage,
    journal: Option<TempImage>,
}

impl Files {
    /// Runs e2fsck on it, if there is one here.
    pub(crate) fn e2fsck(&self, how: &str) -> Result<Output, String> {
        let e2fsck = tool("e2fsck").ok_or("no e2fsck here")?;
        let mut args = vec![OsString::from(how)];
        if let Some(journal) = &self.journal {
            args.extend([OsString::from("-j"), journal.path().into()]);
        }
        args.push(self.image.path().into());
        Ok(e2fsck.run(args))
    }

    /// Mounts it by the kernel; the error is what mount said.
    pub(crate) fn mount(&self, options: &str) -> Result<LoopMount, String> {
        match &self.journal {
            None => LoopMount::new(&self.image.path(), options),
            Some(journal) => LoopMount::with_journal(&self.image.path(), &journal.path(), options),
        }
    }

    /// The image after a power loss: changed by `work` in a kernel mount, and copied while it is
    /// mounted.
    pub(crate) fn left_dirty(
        &self,
        options: &str,
        work: impl FnOnce(&Path),
    ) -> Result<Self, String> {
        let mount = self.mount(options)?;
        work(mount.path());
        let copy = |image: &TempImage| copied(&image.path());
        // Blocks that are checkpointed do not need the log, if the log is copied first.
        let journal = self.journal.as_ref().map(copy).transpose()?;
        let image = copy(&self.image)?;
        mount.unmount()?;
        Ok(Self { image, journal })
    }

    /// Copies of the files.
    pub(crate) fn copied(&self) -> Result<Self, String> {
        let copy = |image: &TempImage| copied(&image.path());
        Ok(Self {
            image: copy(&self.image)?,
            journal: self.journal.as_ref().map(copy).transpose()?,
        })
    }

    /// Opens the files for changes.
    pub(crate) fn devices(&self) -> Devices {
        let open = |image: &TempImage| -> Arc<dyn Device> {
            let device = extant_device::FileDeviceOptions::new().write(true).open(image.path());
            Arc::new(device.expect("a copy of an image is opened"))
        };
        Devices { volume: open(&self.image), journal: self.journal.as_ref().map(open) }
    }

    /// `e2fsck -fn` has nothing to say.
    pub(crate) fn is_silent(&self) -> Result<(), String> {
        let journal = self.journal.as_ref().map(TempImage::path);
        self.without_false_positives(e2fsck_is_silent_with(&self.image.path(), journal.as_deref()))
    }

    /// `e2fsck -fn` finds nothing wrong.
    pub(crate) fn is_clean(&self) -> Result<(), String> {
        let output = self.e2fsck("-fn")?;
        self.without_false_positives(match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
        })
    }

    /// The findings of e2fsck, unless it reports this volume as damaged though it is sound.
    fn without_false_positives(&self, found: Result<(), String>) -> Result<(), String> {
        found.or_else(|found| match false_positives::reason(&self.devices()) {
            Ok(Some(_)) => Ok(()),
            _ => Err(found),
        })
    }
}

/// A device as an image file, holes kept.
fn to_file(device: &dyn Device) -> TempImage {
    use std::os::unix::fs::FileExt;
    let image = TempImage::of_size(device.size()).unwrap();
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    let mut piece = vec![0; 1 << 16];
    for at in (0..device.size()).step_by(piece.len()) {
        let len = piece.len().min((device.size() - at) as usize);
        device.read_at(at, &mut piece[..len]).unwrap();
        if piece[..len].iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece[..len], at).unwrap();
        }
    }
    image
}
