//! Putting a device back.

use std::fs::File;
use std::path::Path;

use super::format::{SUPERBLOCK_AT, Sum};
use super::log::{Kept, UndoLog, superblock};
use super::{CHUNK, UndoError};
use crate::device::Device;

/// How much an undo file must fit the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Check {
    /// The device must be the one, and unchanged since the undo file was finished. One that was
    /// put back already is taken, too.
    Same,
    /// As e2undo: the superblock must be the one that the undo file has.
    Exact,
    /// The kept blocks must lie on the device; whether it is another one or changed since is
    /// reported in [`Applied::mismatch`] (`-f`).
    SizeOnly,
}

/// The choices of [`apply()`].
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions {
    /// How much the file must fit.
    pub check: Check,
    /// Whether nothing is written.
    pub dry_run: bool,
    /// Where the volume begins in the device's file, in place of what the undo file says.
    pub offset: Option<u64>,
    /// Where the device begins in its file.
    pub device_start: u64,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { check: Check::Same, dry_run: false, offset: None, device_start: 0 }
    }
}

/// Old contents that were put back from one key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Restored {
    /// First file system block.
    pub block: u64,
    /// The block of the undo file that the data begin in.
    pub undo_block: u64,
    /// Bytes.
    pub length: u64,
}

/// The contents that were restored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Applied {
    /// In the order of their place.
    pub restored: Vec<Restored>,
    /// Whether the file ends as it should; else the work that it undoes was cut off.
    pub is_finished: bool,
    /// How the device differs from the one that the undo file belongs to.
    pub mismatch: Option<&'static str>,
}

impl Applied {
    /// Bytes of the device.
    pub fn bytes(&self) -> u64 {
        self.restored.iter().map(|restored| restored.length).sum()
    }
}

/// Puts back on `device` what the undo file at `path` kept. The file is read whole and checked
/// before anything is written.
///
/// # Errors
/// The file is no undo file, or broken, or of another device; or one of the two failed. Applying
/// again is safe.
pub fn apply(
    path: &Path,
    device: &dyn Device,
    options: &ApplyOptions,
) -> Result<Applied, UndoError> {
    let opened = File::open(path);
    let file = opened.map_err(|source| UndoError::Io { path: path.to_owned(), source })?;
    let log = UndoLog::read(path, file)?;
    let in_file = options.offset.or(log.header.offset).unwrap_or(0);
    let start = in_file.saturating_sub(options.device_start);
    let now = superblock(device, start)?;
    let mismatch = match options.check {
        Check::Exact if now != log.superblock => Some("its superblock differs"),
        _ => log.mismatch(&now)?,
    };
    if let Some(problem) = mismatch.filter(|_| options.check != Check::SizeOnly) {
        return Err(log.other_image(problem));
    }
    let mut kept = Vec::new();
    for old in &log.kept {
        if start.checked_add(old.end()).is_none_or(|end| end > device.size()) {
            return Err(log.other_image("the image is smaller"));
        }
        if log.is_whole(old)? {
            kept.push(*old);
        } else if log.header.is_finished || !is_untouched(device, start, old)? {
            return Err(log.broken(old.at));
        }
    }
    if !options.dry_run {
        put_all_back(&log, &kept, device, start)?;
    }
    let block_size = u64::from(log.header.block_size);
    let mut restored: Vec<_> = kept
        .iter()
        .map(|kept| Restored {
            block: kept.offset / u64::from(log.header.fs_block_size),
            undo_block: kept.at / block_size,
            length: kept.length,
        })
        .collect();
    restored.sort_by_key(|restored| restored.block);
    Ok(Applied { restored, is_finished: log.header.is_finished, mismatch })
}

/// Whether the device still has what a key was made of: a crash came before its data were on the
/// medium, so nothing of it was overwritten.
fn is_untouched(device: &dyn Device, start: u64, kept: &Kept) -> Result<bool, UndoError> {
    let mut buffer = vec![0; CHUNK.min(kept.length) as usize];
    let (mut sum, mut done) = (Sum::new(), 0);
    while done < kept.length {
        let now = CHUNK.min(kept.length - done) as usize;
        device.read_at(start + kept.offset + done, &mut buffer[..now])?;
        sum.update(&buffer[..now]);
        done += now as u64;
    }
    Ok(sum.value() == kept.key.sum)
}

/// The contents that were kept first of a place are written last. The superblock is held until the
/// end, so that an undo that was cut off is known again.
fn put_all_back(
    log: &UndoLog,
    kept: &[Kept],
    device: &dyn Device,
    start: u64,
) -> Result<(), UndoError> {
    let holds_superblock = |kept: &Kept| kept.offset <= SUPERBLOCK_AT && SUPERBLOCK_AT < kept.end();
    let (last, first): (Vec<_>, Vec<_>) =
        kept.iter().rev().partition(|kept| holds_superblock(kept));
    for part in [first, last] {
        for kept in part {
            log.chunks(kept, |offset, data| {
                let offset = start + offset;
                match data.iter().all(|byte| *byte == 0) {
                    true => device.write_zeroes(offset..offset + data.len() as u64)?,
                    false => device.write_at(offset, data)?,
                }
                Ok(())
            })?;
        }
        device.flush()?;
    }
    Ok(())
}
