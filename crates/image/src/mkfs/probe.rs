//! Existing contents of a device: the signatures of file systems, volume managers, partition tables
//! and archives.

use extant_device::{Device, DeviceError};
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{CompatFeatures, GroupNo, IncompatFeatures, RoCompatFeatures};

/// Bytes at an offset that identify a format.
struct Signature {
    at: u64,
    bytes: &'static [u8],
    name: &'static str,
}

const fn signature(at: u64, bytes: &'static [u8], name: &'static str) -> Signature {
    Signature { at, bytes, name }
}

/// From each format's own documentation; places in bytes from the start.
const SIGNATURES: &[Signature] = &[
    signature(0, b"XFSB", "an xfs file system"),
    signature(0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    signature(0, b"hsqs", "a squashfs file system"),
    signature(1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an erofs file system"),
    signature(1024, &[0x10, 0x20, 0xf5, 0xf2], "an f2fs file system"),
    signature(3, b"NTFS    ", "an ntfs file system"),
    signature(3, b"EXFAT   ", "an exfat file system"),
    signature(82, b"FAT32   ", "a vfat file system"),
    signature(54, b"FAT16   ", "a vfat file system"),
    signature(54, b"FAT12   ", "a vfat file system"),
    signature(0x8001, b"CD001", "an iso9660 file system"),
    signature(0x8001, b"BEA01", "a udf file system"),
    signature(0x8000, b"JFS1", "a jfs file system"),
    signature(0x1_0034, b"ReIsEr", "a reiserfs file system"),
    signature(0x406, &[0x34, 0x34], "a nilfs2 file system"),
    signature(0x2_0000, &[0x0c, 0xb1, 0xba, 0], "a zfs member"),
    signature(4096, b"bcache\0", "a bcache device"),
    signature(4086, b"SWAPSPACE2", "a swap area"),
    signature(4086, b"SWAP-SPACE", "a swap area"),
    signature(65526, b"SWAPSPACE2", "a swap area"),
    signature(0, b"LUKS\xba\xbe", "a LUKS container"),
    signature(0, b"LABELONE", "an LVM2 physical volume"),
    signature(512, b"LABELONE", "an LVM2 physical volume"),
    signature(1024, b"LABELONE", "an LVM2 physical volume"),
    signature(1536, b"LABELONE", "an LVM2 physical volume"),
    signature(0, &[0xfc, 0x4e, 0x2b, 0xa9], "a RAID member"),
    signature(4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a RAID member"),
    signature(512, b"EFI PART", "a GPT partition table"),
    signature(4096, b"EFI PART", "a GPT partition table"),
    signature(0, b"verity\0\0", "a dm-verity hash tree"),
    signature(0, b"QFI\xfb", "a qcow2 image"),
    signature(0, b"KDMV", "a VMDK image"),
    signature(0, b"vhdxfile", "a VHDX image"),
    signature(0, &[0x1f, 0x8b, 8], "gzip data"),
    signature(0, b"\xfd7zXZ\0", "xz data"),
    signature(0, &[0x28, 0xb5, 0x2f, 0xfd], "zstd data"),
    signature(0, b"BZh", "bzip2 data"),
    signature(0, b"PK\x03\x04", "a zip archive"),
    signature(257, b"ustar", "a tar archive"),
    signature(0, b"\x7fELF", "an ELF program"),
];

/// Bytes from the start in which signatures lie.
const HEAD: u64 = 0x2_0000 + 8;

/// The existing contents, in words: `an ext4 file system labelled 'x'`. `offset`: the start of the
/// new file system; the partition table before it may stay.
pub fn probe(device: &dyn Device, offset: u64) -> Result<Option<String>, DeviceError> {
    let length = device.size().saturating_sub(offset).min(HEAD);
    let mut head = vec![0; usize::try_from(length).unwrap_or(0)];
    device.read_at(offset, &mut head)?;
    Ok(identify(&head))
}

/// Whether an ext2, ext3 or ext4 file system or a journal device exists.
pub fn is_ext(device: &dyn Device) -> Result<bool, DeviceError> {
    is_ext_at(device, 0)
}

/// The same for a volume that begins at `offset`.
pub(crate) fn is_ext_at(device: &dyn Device, offset: u64) -> Result<bool, DeviceError> {
    let mut bytes = [0; 1024];
    if device.size().saturating_sub(offset) < 2048 {
        return Ok(false);
    }
    device.read_at(offset + 1024, &mut bytes)?;
    Ok(ext(&bytes).is_some())
}

fn identify(head: &[u8]) -> Option<String> {
    if let Some(found) = head.get(1024..2048).and_then(ext) {
        return Some(found);
    }
    let found = SIGNATURES.iter().find(|signature| {
        let start = usize::try_from(signature.at).unwrap_or(usize::MAX);
        head.get(start..).is_some_and(|rest| rest.starts_with(signature.bytes))
    });
    if let Some(signature) = found {
        return Some(signature.name.to_owned());
    }
    has_partitions(head).then(|| "a DOS partition table".to_owned())
}

/// ext2, ext3, ext4 or a journal device, with its label.
fn ext(bytes: &[u8]) -> Option<String> {
    const MAGIC: u16 = 0xef53;
    let raw = RawSuperblock::from_bytes(bytes, GroupNo(0)).ok()?;
    if raw.s_magic.get() != MAGIC {
        return None;
    }
    let superblock = Superblock::decode(&raw);
    let features = superblock.features;
    let ext3_ro =
        RoCompatFeatures::SPARSE_SUPER | RoCompatFeatures::LARGE_FILE | RoCompatFeatures::BTREE_DIR;
    let ext3_in =
        IncompatFeatures::FILETYPE | IncompatFeatures::RECOVER | IncompatFeatures::META_BG;
    let name = if features.incompat.contains(IncompatFeatures::JOURNAL_DEV) {
        "external ext journal"
    } else if !ext3_ro.contains(features.ro_compat) || !ext3_in.contains(features.incompat) {
        "ext4 file system"
    } else if features.compat.contains(CompatFeatures::HAS_JOURNAL) {
        "ext3 file system"
    } else {
        "ext2 file system"
    };
    let label = String::from_utf8_lossy(superblock.label()).into_owned();
    Some(match label.as_str() {
        "" => format!("an {name}"),
        label => format!("an {name} labelled '{label}'"),
    })
}

/// A boot sector with at least one partition, and states that a partition can have.
fn has_partitions(head: &[u8]) -> bool {
    const TABLE_AT: usize = 446;
    let Some(sector) = head.get(..512) else { return false };
    if sector[510..] != [0x55, 0xaa] {
        return false;
    }
    let entries = sector[TABLE_AT..510].as_chunks::<16>().0;
    let sane = entries.iter().all(|entry| matches!(entry[0], 0 | 0x80));
    sane && entries.iter().any(|entry| entry[4] != 0 && entry[12..] != [0; 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_their_signatures() {
        let with = |at: usize, bytes: &[u8]| {
            let mut head = vec![0; HEAD as usize];
            head[at..at + bytes.len()].copy_from_slice(bytes);
            identify(&head)
        };
        assert_eq!(with(0, b"XFSB").as_deref(), Some("an xfs file system"));
        assert_eq!(with(0x1_0040, b"_BHRfS_M").as_deref(), Some("a btrfs file system"));
        assert_eq!(with(512, b"EFI PART").as_deref(), Some("a GPT partition table"));
        assert_eq!(with(4086, b"SWAPSPACE2").as_deref(), Some("a swap area"));
        assert_eq!(with(1024 + 56, &[0x53, 0xef]).as_deref(), Some("an ext2 file system"));
        assert_eq!(with(0, &[0; 4]), None);
        assert_eq!(identify(&[]), None);
    }

    #[test]
    fn a_boot_sector_alone_is_no_partition_table() {
        let mut sector = vec![0; 512];
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(identify(&sector), None);
        sector[446 + 4] = 0x83;
        sector[446 + 12] = 9;
        assert_eq!(identify(&sector).as_deref(), Some("a DOS partition table"));
    }
}
