//! The one way home: recovery and checkpoint write blocks to where they belong through this function.

use std::io::IoSlice;

use extant_device::{Device, DeviceError, Request};
use extant_ondisk::BlockNo;

/// Most buffers of one vectored write; systems take at least 1,024.
pub(crate) const MAX_BUFFERS: usize = 512;

/// Writes each block of `block_size` bytes to its home: in the order of the device, neighbours in one write, all as one
/// batch. Nothing is flushed. The homes lie on the device and are all different.
///
/// # Errors
/// The first write that failed; others may have been done.
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

#[cfg(test)]
mod tests {
    use super::*;
    use extant_device::MemoryDevice;

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
}
