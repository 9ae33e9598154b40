//! VHD: the disks of Virtual PC and Azure, by Microsoft's "Virtual Hard Disk Image Format". A fixed
//! disk is its bytes and a footer; a dynamic one has a table of blocks.

use std::sync::Arc;

use extant_device::{Device, DeviceError};

use super::error::VmImageError;
use super::mapped::{Map, MappedDevice, Source, Table, damaged};

const FOOTER: u64 = 512;
const HEADER: u64 = 1024;
const SECTOR: u64 = 512;
const FOOTER_MAGIC: &[u8] = b"conectix";
const HEADER_MAGIC: &[u8] = b"cxsparse";
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;
/// The largest block, so that its number of sectors fits a bitmap of a reasonable length.
const BLOCK_MAX: u64 = 256 << 20;
/// An entry of the table for a block that is not there.
const UNUSED: u32 = u32::MAX;

enum Vhd {
    Fixed { size: u64 },
    Dynamic { size: u64, block: u64, table: Table },
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Whether the sum of all bytes but those of the checksum is its complement.
fn is_sound(bytes: &[u8], sum_at: usize) -> bool {
    let sum_bytes = &bytes[sum_at..sum_at + 4];
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    !(sum(bytes) - sum(sum_bytes)) == be32(bytes, sum_at)
}

/// The footer at the end, or its copy in front of a dynamic disk.
fn footer(file: &dyn Device) -> Result<[u8; FOOTER as usize], VmImageError> {
    let mut found = false;
    for start in [file.size().checked_sub(FOOTER), Some(0)].into_iter().flatten() {
        let mut bytes = [0; FOOTER as usize];
        if file.size() < FOOTER {
            break;
        }
        file.read_at(start, &mut bytes)?;
        if bytes.starts_with(FOOTER_MAGIC) {
            found = true;
            if is_sound(&bytes, 64) {
                return Ok(bytes);
            }
        }
    }
    Err(match found {
        true => VmImageError::Damaged { what: "the checksum of the footer" },
        false => VmImageError::OtherFormat { format: "vhd" },
    })
}

/// The disk of an image.
pub(super) fn open(file: Arc<dyn Device>) -> Result<Arc<dyn Device>, VmImageError> {
    let wrong = |what| VmImageError::Damaged { what };
    let footer = footer(&*file)?;
    let (kind, size) = (be32(&footer, 60), be64(&footer, 48));
    let map = match kind {
        FIXED if size > file.size() - FOOTER => {
            return Err(wrong("the file is shorter than its disk"));
        }
        FIXED => Vhd::Fixed { size },
        DYNAMIC => {
            let at = be64(&footer, 16);
            let is_inside = at.checked_add(HEADER).is_some_and(|end| end <= file.size());
            let mut header = [0; HEADER as usize];
            if !is_inside {
                return Err(wrong("the header is past the end of the file"));
            }
            file.read_at(at, &mut header)?;
            if !header.starts_with(HEADER_MAGIC) || !is_sound(&header, 36) {
                return Err(wrong("the checksum of the header"));
            }
            let (entries, block) = (u64::from(be32(&header, 28)), u64::from(be32(&header, 32)));
            if !block.is_power_of_two() || !(SECTOR..=BLOCK_MAX).contains(&block) {
                return Err(wrong("invalid block size"));
            }
            if size.div_ceil(block) > entries {
                return Err(wrong("the table does not fit the size of the disk"));
            }
            Vhd::Dynamic { size, block, table: Table::new(be64(&header, 16), 4) }
        }
        DIFFERENCING => {
            let what = "a differencing disk of VHD (merge it into its parent)".to_owned();
            return Err(VmImageError::Unsupported { what });
        }
        kind => {
            let what = format!("VHD disks of type {kind}");
            return Err(VmImageError::Unsupported { what });
        }
    };
    Ok(Arc::new(MappedDevice::new(file, map)))
}

impl Map for Vhd {
    fn size(&self) -> u64 {
        match self {
            Self::Fixed { size } | Self::Dynamic { size, .. } => *size,
        }
    }

    fn locate(&self, file: &dyn Device, at: u64) -> Result<(Source, u64), DeviceError> {
        match self {
            Self::Fixed { size } => Ok((Source::File(at), size - at)),
            Self::Dynamic { size, block, table } => {
                let within = at % block;
                let length = (block - within).min(size - at);
                let number = table.get(file, at / block)?;
                let sector = be32(&number, 4);
                if sector == UNUSED {
                    return Ok((Source::Zero, length));
                }
                // In front of the data is a bitmap of their sectors.
                let bitmap = (block / SECTOR).div_ceil(8).next_multiple_of(SECTOR);
                let start = u64::from(sector) * SECTOR + bitmap + within;
                match start + length <= file.size() {
                    true => Ok((Source::File(start), length)),
                    false => Err(damaged(at, "a block is past the end of the file")),
                }
            }
        }
    }
}
