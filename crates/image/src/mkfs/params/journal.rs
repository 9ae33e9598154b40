//! How large the journal and the orphan file are, and where the journal is wanted.

use extant_layout::tables::default_journal_blocks;
use extant_ondisk::{CompatFeatures, IncompatFeatures};

use super::super::error::{Conflict, MkfsError, Shortage, SizeError, ValueError};
use super::super::features;
use super::super::numbers;
use super::super::options::JournalOptions;
use super::types::{FsParams, JournalFigures};

/// A journal has at least this many blocks, from mke2fs(8).
const MIN_JOURNAL: u64 = 1024;
/// And at most this many.
const MAX_JOURNAL: u64 = 10_240_000;
/// The part of the default journal that fast commits get by default.
const FAST_COMMIT_SHARE: u64 = 64;

/// Sets the internal journal's figures, or takes the journal's features off a volume that is too
/// small.
pub(super) fn internal(
    params: &mut FsParams,
    options: &JournalOptions,
    location: Option<&str>,
) -> Result<(), MkfsError> {
    if !params.features.compat.contains(CompatFeatures::HAS_JOURNAL) || options.device.is_some() {
        return Ok(());
    }
    let has_fast_commits = params.features.compat.contains(CompatFeatures::FAST_COMMIT);
    let Some((blocks, fast_commit_blocks)) =
        blocks(params.blocks, params.block_size, options, has_fast_commits)?
    else {
        params.warnings.push("file system too small for a journal".to_owned());
        features::drop_journal(&mut params.features);
        return Ok(());
    };
    let location = match location {
        Some(text) => {
            let block = numbers::size(text, params.block_size)
                .ok_or_else(|| ValueError::JournalLocation(text.to_owned()))?;
            if block >= params.blocks {
                return Err(ValueError::JournalLocationBeyond(text.to_owned()).into());
            }
            Some(block)
        }
        None => None,
    };
    params.journal = Some(JournalFigures { blocks, fast_commit_blocks, location });
    Ok(())
}

/// Blocks of an internal journal, those for fast commits included, and how many of them are for
/// fast commits; `None` for a volume of so few blocks that it gets no journal.
pub(crate) fn blocks(
    volume: u64,
    block_size: u32,
    options: &JournalOptions,
    has_fast_commits: bool,
) -> Result<Option<(u32, u32)>, MkfsError> {
    let block_size = u64::from(block_size);
    let requested = options.megabytes.filter(|size| *size != 0);
    let Some(default) = default_journal_blocks(volume) else { return Ok(None) };
    let main = requested.map_or(default, |megabytes| (u64::from(megabytes) << 20) / block_size);
    let fast_commit = if has_fast_commits {
        match options.fast_commit_kilobytes.filter(|size| *size != 0) {
            Some(kilobytes) => (u64::from(kilobytes) << 10) / block_size,
            None => default / FAST_COMMIT_SHARE,
        }
    } else {
        0
    };
    let total = main + fast_commit;
    if !(MIN_JOURNAL..=MAX_JOURNAL).contains(&total) {
        let (min, max) = (MIN_JOURNAL, MAX_JOURNAL);
        return Err(SizeError::Journal { total, min, max, block_size }.into());
    }
    if total >= volume / 2 && requested.is_some() {
        return Err(SizeError::JournalTooBig.into());
    }
    let narrow = |blocks: u64| u32::try_from(blocks).expect("at most MAX_JOURNAL, checked above");
    Ok(Some((narrow(total), narrow(fast_commit))))
}

/// A journal device is all journal: no groups, no inodes, nothing reserved.
pub(super) fn whole_device(params: &mut FsParams) -> Result<(), MkfsError> {
    let blocks = u32::try_from(params.blocks).map_err(|_| SizeError::JournalDevice)?;
    if u64::from(blocks) < MIN_JOURNAL {
        return Err(Shortage::Journal { min: MIN_JOURNAL }.into());
    }
    params.journal = Some(JournalFigures { blocks, fast_commit_blocks: 0, location: None });
    params.flex_bg_size = 1;
    params.groups = 0;
    Ok(())
}

/// Blocks of the volume for each block of the orphan file, and its bounds; a requested size is cut
/// to the upper one.
const VOLUME_SHARE: u64 = 4096;
const MIN_ORPHAN_FILE: u64 = 32;
const MAX_ORPHAN_FILE: u64 = 512;

/// Sets the orphan file's size.
pub(super) fn orphan_file(params: &mut FsParams) -> Result<(), MkfsError> {
    let requested = params.extended.orphan_file_size.as_deref();
    let has_file = params.features.compat.contains(CompatFeatures::ORPHAN_FILE)
        && !params.features.incompat.contains(IncompatFeatures::JOURNAL_DEV);
    if !has_file {
        return match requested {
            // Dropped with the journal of a volume that is too small, it is not the user's doing.
            Some(_) if params.features.compat.contains(CompatFeatures::HAS_JOURNAL) => {
                Err(Conflict::OrphanFileSize.into())
            }
            _ => Ok(()),
        };
    }
    let requested = requested.map(|text| {
        let bytes = numbers::size(text, 1).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| ValueError::OrphanFileSize(text.to_owned()))?;
        Ok::<_, MkfsError>(bytes.div_ceil(u64::from(params.block_size)))
    });
    params.orphan_file_blocks = orphan_file_blocks(requested.transpose()?, params.blocks);
    Ok(())
}

/// Number of blocks of the orphan file of a volume of the given size: the requested ones up to the
/// limit, or the default.
pub(crate) fn orphan_file_blocks(requested: Option<u64>, volume: u64) -> u32 {
    let blocks = match requested {
        Some(blocks) => blocks.min(MAX_ORPHAN_FILE),
        None => (volume / VOLUME_SHARE).clamp(MIN_ORPHAN_FILE, MAX_ORPHAN_FILE),
    };
    u32::try_from(blocks).expect("at most MAX_ORPHAN_FILE")
}
