//! VHDX: the disks of Hyper-V, by Microsoft's "[MS-VHDX]". An image with a log that must be
//! replayed is refused, as it is only read.

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use extant_device::{Device, DeviceError};

use super::error::VmImageError;
use super::mapped::{Map, MappedDevice, Source, Table, damaged};

const MIB: u64 = 1 << 20;
const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const HEADER: u64 = 4096;
const REGIONS: [u64; 2] = [192 << 10, 256 << 10];
const REGION_TABLE: u64 = 64 << 10;
const METADATA_TABLE: u64 = 64 << 10;
/// Entries of a table of regions or metadata.
const ENTRIES_MAX: u32 = 2047;
/// The largest disk of the format.
const SIZE_MAX: u64 = 64 << 40;
/// States of a block.
const NOT_PRESENT: u64 = 0;
const UNDEFINED: u64 = 1;
const ZERO: u64 = 2;
const UNMAPPED: u64 = 3;
const FULLY_PRESENT: u64 = 6;

/// GUIDs, as they are stored.
type Guid = [u8; 16];

/// A GUID from its text without hyphens.
const fn guid(text: u128) -> Guid {
    let mut bytes = text.to_be_bytes();
    // The first three fields are little-endian.
    let swaps = [(0, 3), (1, 2), (4, 5), (6, 7)];
    let mut at = 0;
    while at < swaps.len() {
        let (one, other) = swaps[at];
        (bytes[one], bytes[other]) = (bytes[other], bytes[one]);
        at += 1;
    }
    bytes
}

const BAT: Guid = guid(0x2dc2_7766_f623_4200_9d64_115e_9bfd_4a08);
const METADATA: Guid = guid(0x8b7c_a206_4790_4b9a_b8fe_575f_050f_886e);
const FILE_PARAMETERS: Guid = guid(0xcaa1_6737_fa36_4d43_b3b6_33f0_aa44_e76b);
const DISK_SIZE: Guid = guid(0x2fa5_4224_cd1b_4876_b211_5dbe_d83b_f4b8);
const LOGICAL_SECTOR: Guid = guid(0x8141_bf1d_a96f_4709_ba47_f233_a8fa_ab5f);
const PHYSICAL_SECTOR: Guid = guid(0xcda3_48c7_445d_4471_9cc9_e988_5251_c556);
const DISK_ID: Guid = guid(0xbeca_12ab_b2e6_4523_93ef_c309_e000_c746);
const PARENT: Guid = guid(0xa8d3_5f2d_b30b_454d_abf7_d3d8_4834_ab0c);

struct Vhdx {
    size: u64,
    block: u64,
    /// Blocks between two entries of the table that are for bitmaps.
    chunk: u64,
    table: Table,
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn wrong(what: &'static str) -> VmImageError {
    VmImageError::Damaged { what }
}

fn unsupported(what: &str) -> VmImageError {
    VmImageError::Unsupported { what: what.to_owned() }
}

/// Bytes with a signature and a CRC-32C at byte 4; `None` where they are not sound.
fn sound(
    file: &dyn Device,
    at: u64,
    length: u64,
    signature: &[u8],
) -> Result<Option<Vec<u8>>, VmImageError> {
    if at.checked_add(length).is_none_or(|end| end > file.size()) {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    file.read_at(at, &mut bytes)?;
    let stored = le32(&bytes, 4);
    let mut summed = bytes.clone();
    summed[4..8].fill(0);
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &summed);
    let is_sound = bytes.starts_with(signature) && u64::from(stored) == sum;
    Ok(is_sound.then_some(bytes))
}

/// The header that is in force.
fn header(file: &dyn Device) -> Result<Vec<u8>, VmImageError> {
    let mut newest: Option<Vec<u8>> = None;
    for at in HEADERS {
        let Some(found) = sound(file, at, HEADER, b"head")? else { continue };
        if newest.as_ref().is_none_or(|known| le64(known, 8) < le64(&found, 8)) {
            newest = Some(found);
        }
    }
    newest.ok_or(wrong("both headers"))
}

/// The places of the table of blocks and of the metadata.
fn regions(file: &dyn Device) -> Result<(u64, u64), VmImageError> {
    let mut table = None;
    for at in REGIONS {
        if table.is_none() {
            table = sound(file, at, REGION_TABLE, b"regi")?;
        }
    }
    let table = table.ok_or(wrong("both tables of regions"))?;
    let count = le32(&table, 8);
    if count > ENTRIES_MAX {
        return Err(wrong("too many regions"));
    }
    let (mut blocks, mut metadata) = (None, None);
    for entry in table[16..].chunks_exact(32).take(count as usize) {
        let at = Some(le64(entry, 16)).filter(|at| *at >= MIB && *at < file.size());
        match entry[..16].try_into() {
            Ok(BAT) => blocks = at,
            Ok(METADATA) => metadata = at,
            _ if le32(entry, 28) & 1 != 0 => return Err(unsupported("an unknown region of VHDX")),
            _ => {}
        }
    }
    blocks.zip(metadata).ok_or(wrong("a region is missing"))
}

/// The disk by its metadata.
#[derive(Default)]
struct Metadata {
    size: u64,
    block: u64,
    sector: u64,
    has_parent: bool,
}

fn metadata(file: &dyn Device, start: u64) -> Result<Metadata, VmImageError> {
    let past = || wrong("the metadata are past the end of the file");
    if start.checked_add(METADATA_TABLE).is_none_or(|end| end > file.size()) {
        return Err(past());
    }
    let mut table = vec![0; METADATA_TABLE as usize];
    file.read_at(start, &mut table)?;
    if !table.starts_with(b"metadata") {
        return Err(wrong("the signature of the metadata"));
    }
    let mut found = Metadata::default();
    let count = usize::from(le16(&table, 10)).min(ENTRIES_MAX as usize);
    for entry in table[32..].chunks_exact(32).take(count) {
        let mut item = [0; 8];
        let mut value = |length: usize| -> Result<u64, VmImageError> {
            let at = start.checked_add(u64::from(le32(entry, 16)));
            let at = at.filter(|at| at.checked_add(8).is_some_and(|end| end <= file.size()));
            file.read_at(at.ok_or_else(past)?, &mut item[..length])?;
            Ok(u64::from_le_bytes(item))
        };
        match entry[..16].try_into() {
            Ok(FILE_PARAMETERS) => {
                let parameters = value(8)?;
                found.block = parameters & u64::from(u32::MAX);
                found.has_parent = parameters >> 33 & 1 != 0;
            }
            Ok(DISK_SIZE) => found.size = value(8)?,
            Ok(LOGICAL_SECTOR) => found.sector = value(4)?,
            Ok(PHYSICAL_SECTOR | DISK_ID) => {}
            Ok(PARENT) => found.has_parent = true,
            _ if le32(entry, 24) & 4 != 0 => {
                return Err(unsupported("an unknown item of the metadata of VHDX"));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The disk of an image.
pub(super) fn open(file: Arc<dyn Device>) -> Result<Arc<dyn Device>, VmImageError> {
    let mut magic = [0; 8];
    if file.size() >= 8 {
        file.read_at(0, &mut magic)?;
    }
    if magic != *b"vhdxfile" {
        return Err(VmImageError::OtherFormat { format: "vhdx" });
    }
    let header = header(&*file)?;
    if le16(&header, 66) != 1 {
        return Err(unsupported(&format!("VHDX version {}", le16(&header, 66))));
    }
    if header[48..64] != [0; 16] {
        return Err(unsupported(
            "a log that must be replayed first (run qemu-img check -r all, or attach it in Hyper-V)",
        ));
    }
    let (blocks, start) = regions(&*file)?;
    let Metadata { size, block, sector, has_parent } = metadata(&*file, start)?;
    if has_parent {
        return Err(unsupported("a differencing disk of VHDX (merge it into its parent)"));
    }
    if !block.is_power_of_two() || !(MIB..=256 * MIB).contains(&block) {
        return Err(wrong("invalid block size"));
    }
    if ![512, 4096].contains(&sector) || size > SIZE_MAX {
        return Err(wrong("invalid size of the disk or of its sectors"));
    }
    let chunk = (sector << 23) / block;
    let map = Vhdx { size, block, chunk, table: Table::new(blocks, 8) };
    Ok(Arc::new(MappedDevice::new(file, map)))
}

impl Map for Vhdx {
    fn size(&self) -> u64 {
        self.size
    }

    fn locate(&self, file: &dyn Device, at: u64) -> Result<(Source, u64), DeviceError> {
        let (number, within) = (at / self.block, at % self.block);
        let length = (self.block - within).min(self.size - at);
        // After the blocks of a chunk is the entry of their bitmap.
        let index = number + number / self.chunk;
        let entry = u64::from_le_bytes(self.table.get(file, index)?);
        match entry & 7 {
            NOT_PRESENT | UNDEFINED | ZERO | UNMAPPED => Ok((Source::Zero, length)),
            FULLY_PRESENT => {
                let start = (entry >> 20).saturating_mul(MIB).saturating_add(within);
                match start.checked_add(length).is_some_and(|end| end <= file.size()) {
                    true => Ok((Source::File(start), length)),
                    false => Err(damaged(at, "a block is past the end of the file")),
                }
            }
            state => Err(damaged(at, &format!("a block has the state {state}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_stored_with_three_fields_in_little_endian_order() {
        assert_eq!(
            BAT,
            [
                0x66, 0x77, 0xc2, 0x2d, 0x23, 0xf6, 0x00, 0x42, 0x9d, 0x64, 0x11, 0x5e, 0x9b, 0xfd,
                0x4a, 0x08
            ]
        );
    }
}
