//! A new qcow2 image without data.

use extant_device::{Device, DeviceError};

use super::file::GrowingFile;
use crate::vm::error::VmImageError;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Clusters before the L1 table: the header, the table of counts, a block of counts.
const BEFORE_L1: u64 = 3;
/// Bytes of a header of version 3.
const HEADER: u32 = 104;
/// The width of a count: 16 bits.
const COUNTS_ORDER: u32 = 4;
/// The largest L1 table of qemu, in bytes.
const L1_MAX: u64 = 32 << 20;

/// Makes an image of `size` bytes, version 3, in an empty file. The header comes last.
pub(in crate::vm) fn create(
    file: std::sync::Arc<extant_device::FileDevice>,
    size: u64,
) -> Result<(), VmImageError> {
    let file = GrowingFile::of_file(file);
    write(&file, size)
}

fn write(file: &GrowingFile, size: u64) -> Result<(), VmImageError> {
    let size = size.next_multiple_of(512);
    let l1_entries = size.div_ceil(CLUSTER * (CLUSTER / 8));
    if l1_entries * 8 > L1_MAX {
        return Err(VmImageError::Unsupported { what: format!("a disk of {size} bytes") });
    }
    let clusters = BEFORE_L1 + (l1_entries * 8).div_ceil(CLUSTER).max(1);
    let done = || -> Result<(), DeviceError> {
        file.reach(clusters * CLUSTER)?;
        let device = &file.device;
        device.write_at(CLUSTER, &(2 * CLUSTER).to_be_bytes())?;
        let counts: Vec<u8> = (0..clusters).flat_map(|_| 1_u16.to_be_bytes()).collect();
        device.write_at(2 * CLUSTER, &counts)?;
        device.flush()?;
        device.write_at(0, &header(size, l1_entries))?;
        device.flush()
    };
    Ok(done()?)
}

fn header(size: u64, l1_entries: u64) -> Vec<u8> {
    let mut header = b"QFI\xfb".to_vec();
    header.extend(3_u32.to_be_bytes());
    // No backing file.
    header.extend([0; 12]);
    header.extend(CLUSTER_BITS.to_be_bytes());
    header.extend(size.to_be_bytes());
    // No encryption.
    header.extend([0; 4]);
    header.extend((l1_entries as u32).to_be_bytes());
    header.extend((BEFORE_L1 * CLUSTER).to_be_bytes());
    header.extend(CLUSTER.to_be_bytes());
    header.extend(1_u32.to_be_bytes());
    // No snapshots, no features.
    header.extend([0; 12 + 24]);
    header.extend(COUNTS_ORDER.to_be_bytes());
    header.extend(HEADER.to_be_bytes());
    // The end of the extensions.
    header.extend([0; 8]);
    header
}
