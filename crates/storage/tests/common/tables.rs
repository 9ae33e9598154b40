//! Partition tables made by hand, from the UEFI specification.

use extant_device::{Device, MemoryDevice};

pub(crate) const MIB: u64 = 1 << 20;
/// Linux data: 0FC63DAF-8483-4772-8E79-3D69D8477DE4 as stored.
pub(crate) const LINUX_GUID: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// A GPT's header for sector `lba`.
fn header(sector_size: usize, lba: u64, other: u64, entries_lba: u64, entries: &[u8]) -> Vec<u8> {
    let mut header = vec![0; sector_size];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..12].copy_from_slice(&[0, 0, 1, 0]);
    header[12..16].copy_from_slice(&92_u32.to_le_bytes());
    header[24..32].copy_from_slice(&lba.to_le_bytes());
    header[32..40].copy_from_slice(&other.to_le_bytes());
    header[72..80].copy_from_slice(&entries_lba.to_le_bytes());
    header[80..84].copy_from_slice(&((entries.len() / 128) as u32).to_le_bytes());
    header[84..88].copy_from_slice(&128_u32.to_le_bytes());
    header[88..92].copy_from_slice(&crc32(entries).to_le_bytes());
    seal(&mut header);
    header
}

pub(crate) fn seal(header: &mut [u8]) {
    header[16..20].fill(0);
    let crc = crc32(&header[..92]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
}

/// A disk of 4 MiB with a GPT: entry 1 has sectors 100 to 199, entry 3 sectors 200 to 200.
pub(crate) fn gpt_disk(sector_size: usize) -> MemoryDevice {
    let device = MemoryDevice::new(4 * MIB);
    let mut mbr = [0; 512];
    mbr[446 + 4] = 0xee;
    mbr[446 + 8] = 1;
    mbr[446 + 12..446 + 16].fill(0xff);
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    device.write_at(0, &mbr).expect("it fits");

    let mut entries = vec![0; 128 * 128];
    for (index, first, last) in [(0, 100_u64, 199_u64), (2, 200, 200)] {
        let entry = &mut entries[index * 128..][..128];
        entry[..16].copy_from_slice(&LINUX_GUID);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
    }
    let sector = sector_size as u64;
    let last = 4 * MIB / sector - 1;
    let backup_entries = last - (entries.len() as u64).div_ceil(sector);
    for (lba, other, entries_lba) in [(1, last, 2), (last, 1, backup_entries)] {
        device
            .write_at(lba * sector, &header(sector_size, lba, other, entries_lba, &entries))
            .expect("it fits");
        device.write_at(entries_lba * sector, &entries).expect("it fits");
    }
    device
}
