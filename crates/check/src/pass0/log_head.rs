//! The journal's superblock, put right field by field where the log itself says that it still leads
//! to it: a log that waits for its replay is not thrown away for one wrong field.

use extant_device::DeviceError;
use extant_journal::Log;
use extant_ondisk::jbd2::{
    BlockType, Header, JOURNAL_MAGIC, JournalCompat, JournalIncompat, JournalSuperblock,
    RawJournalSuperblock,
};
use zerocopy::IntoBytes;

/// `s_checksum_type` of crc32c.
const CRC32C: u8 = 4;

/// The superblock of a log of `blocks` blocks with every field that its place knows better; `None`
/// where that changes nothing, or where the log does not start as it then says.
pub(super) fn mended(
    log: &Log<'_>,
    blocks: u32,
) -> Result<Option<RawJournalSuperblock>, DeviceError> {
    let block = read(log, log.place.superblock_at)?;
    let Ok(stored) = RawJournalSuperblock::from_bytes(&block) else { return Ok(None) };
    let raw = with_known_fields(&stored, log, blocks);
    let Ok(superblock) = JournalSuperblock::decode(&raw) else { return Ok(None) };
    if raw.as_bytes() == stored.as_bytes() {
        return Ok(None);
    }
    // An empty log has no block that confirms the rest.
    let is_believed = if superblock.start == 0 {
        stored.s_header.as_bytes() == raw.s_header.as_bytes()
    } else {
        let first = Header::of(&read(log, superblock.start)?);
        first.is_some_and(|header| {
            header.tid == superblock.sequence
                && !matches!(header.block_type, BlockType::SuperblockV1 | BlockType::SuperblockV2)
        })
    };
    Ok(Some(raw).filter(|_| is_believed))
}

/// Whether a superblock with unknown features is of a newer version: its checksum matches, which
/// was verified before, or it has none and the fields that every version has are valid. Else it is
/// corrupt.
pub(super) fn is_newer(log: &Log<'_>) -> Result<bool, DeviceError> {
    let block = read(log, log.place.superblock_at)?;
    let Ok(raw) = RawJournalSuperblock::from_bytes(&block) else { return Ok(false) };
    let features = JournalIncompat::from_bits_retain(raw.s_feature_incompat.get());
    let has_checksum = features.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3);
    let fits = raw.s_blocksize.get() == log.place.block_size
        && raw.s_nr_users.get() <= raw.s_users.len() as u32; // 48
    Ok(has_checksum || fits)
}

fn with_known_fields(
    stored: &RawJournalSuperblock,
    log: &Log<'_>,
    blocks: u32,
) -> RawJournalSuperblock {
    let mut raw = *stored;
    let version = match BlockType::decode(raw.s_header.h_blocktype.get()) {
        Some(version @ (BlockType::SuperblockV1 | BlockType::SuperblockV2)) => version,
        _ => BlockType::SuperblockV2,
    };
    raw.s_header.h_magic.set(JOURNAL_MAGIC);
    raw.s_header.h_blocktype.set(version.encode());
    raw.s_blocksize.set(log.place.block_size);
    raw.s_first.set(log.place.superblock_at.saturating_add(1));
    let is_possible = (raw.s_first.get().saturating_add(2)..=blocks).contains(&raw.s_maxlen.get());
    if !is_possible || stored.verify().is_err() {
        raw.s_maxlen.set(blocks);
    }
    if version == BlockType::SuperblockV2 {
        let features = JournalIncompat::from_bits_retain(raw.s_feature_incompat.get());
        let known = features & JournalIncompat::READABLE;
        raw.s_feature_incompat.set(known.bits());
        if known.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3) {
            raw.s_checksum_type = CRC32C;
            let compat = JournalCompat::from_bits_retain(raw.s_feature_compat.get());
            raw.s_feature_compat.set((compat - JournalCompat::CHECKSUM).bits());
        }
        let most = raw.s_users.len() as u32;
        if raw.s_nr_users.get() > most {
            let users = raw.s_users.iter().take_while(|user| **user != [0; 16]).count();
            raw.s_nr_users.set(users.max(1) as u32); // at most `most`
        }
    }
    raw.seal();
    raw
}

/// A block of the log; zeros where the log has none.
fn read(log: &Log<'_>, at: u32) -> Result<Vec<u8>, DeviceError> {
    let mut block = vec![0; log.place.block_size as usize];
    let size = u64::from(log.place.block_size);
    if let Some((start, _)) = log.place.runs.pieces(at, 1).next()
        && let Some(offset) = start.0.checked_mul(size)
        && offset.checked_add(size).is_some_and(|end| end <= log.device.size())
    {
        log.device.read_at(offset, &mut block)?;
    }
    Ok(block)
}
