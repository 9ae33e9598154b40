//! The changes of an upper file, brought into its base.

use std::ops::Range;

use extant_device::{Device, DeviceError};

use super::blocks::Blocks;
use super::error::OverlayError;
use super::header::{BITMAP_AT, BaseIdentity, Header, State};

/// Bytes that are copied together.
const COPY: u64 = 1 << 20;

/// The result of a commit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Committed {
    /// Bytes that were copied.
    pub copied: u64,
    /// Bytes that were made zeroes.
    pub zeroed: u64,
}

/// Writes all blocks of `upper` to `base`, and empties `upper`. `times` are the sizes and
/// modification times of the base's files, asked for before and after.
///
/// The header says that a commit is under way before the base is written, and the bitmap is
/// emptied after the base has everything: a commit that was interrupted is begun again, and nothing
/// else is done with the files before it is done.
///
/// # Errors
/// The base is another or has changed, or a device failed: then the changes are still in `upper`.
pub(crate) fn commit(
    base: &dyn Device,
    times: &dyn Fn() -> Vec<u8>,
    upper: &dyn Device,
) -> Result<Committed, OverlayError> {
    let Some(mut header) = Header::read(upper)? else { return Ok(Committed::default()) };
    match header.state {
        State::InUse => header.check_base(base, &times())?,
        // The base is between the two states; its size cannot have changed.
        State::Committing if base.size() == header.base.size => {}
        State::Committing => {
            return Err(OverlayError::BaseChanged { difference: "its size is another" });
        }
    }
    let blocks = Blocks::read(&header, upper)?;
    header.state = State::Committing;
    header.write(upper)?;
    upper.flush()?;

    let mut committed = Committed::default();
    for run in blocks.runs() {
        let bytes = run.start * header.block_size..(run.end * header.block_size).min(base.size());
        copy(base, upper, header.data_at(), bytes, &mut committed)?;
    }
    base.flush()?;

    // From here on the blocks are the base's too, whether the bitmap has them or not.
    header.base = BaseIdentity::of(base, &times())?;
    header.state = State::InUse;
    header.write(upper)?;
    upper.flush()?;
    upper.write_zeroes(BITMAP_AT..header.data_at())?;
    upper.flush()?;
    upper.discard(header.data_at()..header.file_size())?;
    upper.flush()?;
    Ok(committed)
}

fn copy(
    base: &dyn Device,
    upper: &dyn Device,
    data_at: u64,
    bytes: Range<u64>,
    committed: &mut Committed,
) -> Result<(), DeviceError> {
    let mut at = bytes.start;
    let mut buffer = vec![0; COPY.min(bytes.end - bytes.start) as usize];
    while at < bytes.end {
        let next = upper.next_data(data_at + at..data_at + bytes.end)?;
        let data = next.map_or(bytes.end..bytes.end, |run| run.start - data_at..run.end - data_at);
        if at < data.start {
            base.write_zeroes(at..data.start)?;
            committed.zeroed += data.start - at;
        }
        at = data.start;
        while at < data.end {
            let piece = &mut buffer[..COPY.min(data.end - at) as usize];
            upper.read_at(data_at + at, piece)?;
            base.write_at(at, piece)?;
            at += piece.len() as u64;
            committed.copied += piece.len() as u64;
        }
    }
    Ok(())
}
