//! Writes of blocks to their home locations, shared by recovery and checkpoint.

use std::io::IoSlice;

use extant_device::{Device, DeviceError, Request};
use extant_ondisk::BlockNo;

/// Maximum number of buffers in one vectored write; systems accept at least 1,024.
pub(crate) const MAX_BUFFERS: usize = 512;

/// Writes each block of `block_size` bytes to its home location, as one batch in device order.
/// Adjacent blocks share a write. Nothing is flushed. The home locations are on the device and all
/// different.
///
/// # Errors
/// The first write that failed; others may have been completed.
pub(crate) fn write_home(
    device: &dyn Device,
    block_size: u32,
    blocks: &mut [(BlockNo, &[u8])],
) -> Result<(), DeviceError> {
    blocks.sort_unstable_by_key(|(home, _)| *home);
    let mut batch = Vec::new();
    let mut left = &*blocks;
    while let Some((first, _)) = left.first() {
        let together = left
            .iter()
            .zip(first.0..)
            .take(MAX_BUFFERS)
            .take_while(|((home, _), expected)| home.0 == *expected)
            .count();
        let (now, later) = left.split_at(together);
        let buffers = now.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
        batch.push(Request::write_vectored(first.0 * u64::from(block_size), buffers));
        left = later;
    }
    device.submit(&mut batch)
}

/// When a block of a transaction is written on a volume without a log. The order ensures that an
/// entry moved from one block to another is always in at least one of them: it is written to the
/// new block before it is removed from the old one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Turn {
    /// A new block: no block on the device refers to it yet.
    First,
    /// A block that refers to new blocks, or one without references.
    #[default]
    Middle,
    /// A block that an entry may have been moved out of.
    Last,
}

/// Writes the blocks of a transaction that is not logged, turn by turn. A failed write may have
/// torn its blocks: they are written again one by one. If one of them cannot be written, the blocks
/// of later turns are not written. Nothing is flushed.
///
/// # Errors
/// The first write that failed, even if writing its blocks again succeeded.
pub(crate) fn write_in_turns(
    device: &dyn Device,
    block_size: u32,
    blocks: &[(Turn, BlockNo, &[u8])],
) -> Result<(), DeviceError> {
    let mut failure = None;
    for turn in [Turn::First, Turn::Middle, Turn::Last] {
        let of_turn = blocks.iter().filter(|(its, ..)| *its == turn);
        let mut homes: Vec<_> = of_turn.map(|(_, home, bytes)| (*home, *bytes)).collect();
        let Err(error) = write_home(device, block_size, &mut homes) else { continue };
        let write = |(home, bytes): &(BlockNo, &[u8])| {
            device.write_at(home.0 * u64::from(block_size), bytes)
        };
        let missing = homes.iter().filter(|block| write(block).is_err()).count();
        let first = failure.get_or_insert(error);
        if missing > 0 {
            return Err(first.clone());
        }
    }
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_device::{MemoryDevice, Operation};
    use extant_sim::{Effect, Fault, FaultyDevice};
    use std::sync::Arc;

    #[test]
    fn every_block_comes_home_whatever_the_order() {
        let device = MemoryDevice::new(1 << 20);
        let bytes: Vec<[u8; 1024]> = (0..6).map(|value| [value; 1024]).collect();
        let homes = [9, 8, 1, 1000, 10, 3];
        let mut blocks: Vec<_> =
            homes.iter().zip(&bytes).map(|(home, bytes)| (BlockNo(*home), &bytes[..])).collect();
        write_home(&device, 1024, &mut blocks).unwrap();
        for (home, bytes) in homes.iter().zip(&bytes) {
            let mut found = [0xff; 1024];
            device.read_at(home * 1024, &mut found).unwrap();
            assert_eq!(&found, bytes, "block {home}");
        }
    }

    #[test]
    fn what_a_write_may_have_torn_is_written_again_and_later_turns_wait_for_it() {
        let old = [7; 1024];
        let new = [8; 1024];
        let blocks = [(Turn::Last, 1), (Turn::Middle, 5), (Turn::Middle, 6), (Turn::First, 9)];
        let found = |times| {
            let memory = Arc::new(MemoryDevice::new(1 << 20));
            for (_, home) in blocks {
                memory.write_at(home * 1024, &old).unwrap();
            }
            let device = FaultyDevice::new(memory.clone());
            // The fault hits the second turn.
            let fault = Fault::new(Effect::Short(700)).on(Operation::Write).after(1).times(times);
            device.inject(fault);
            let all: Vec<_> =
                blocks.iter().map(|(turn, home)| (*turn, BlockNo(*home), &new[..])).collect();
            write_in_turns(&device, 1024, &all).unwrap_err();
            blocks.map(|(_, home)| {
                let mut bytes = [0; 1024];
                memory.read_at(home * 1024, &mut bytes).unwrap();
                (bytes == new, bytes == old)
            })
        };
        let (written, torn, kept) = ((true, false), (false, false), (false, true));
        assert_eq!(found(1), [written; 4]);
        assert_eq!(found(2), [kept, torn, written, written]);
    }
}
