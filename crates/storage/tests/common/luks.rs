//! LUKS headers written from the documented formats.

use extant_device::{Device, MemoryDevice};
use sha2::{Digest, Sha256};

/// A LUKS1 header with one key slot; the rounds of PBKDF2 lie at 164 and 212, the data's place at
/// 104.
pub(crate) fn luks1_header() -> Vec<u8> {
    let mut header = vec![0; 592];
    header[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
    header[8..11].copy_from_slice(b"aes");
    header[40..51].copy_from_slice(b"xts-plain64");
    header[72..78].copy_from_slice(b"sha256");
    header[104..108].copy_from_slice(&8_u32.to_be_bytes());
    header[108..112].copy_from_slice(&64_u32.to_be_bytes());
    for slot in 0..8_usize {
        let state: u32 = if slot == 0 { 0x00ac_71f3 } else { 0x0000_dead };
        header[208 + slot * 48..][..4].copy_from_slice(&state.to_be_bytes());
    }
    header[248..252].copy_from_slice(&2_u32.to_be_bytes());
    header[252..256].copy_from_slice(&4_u32.to_be_bytes());
    header
}

/// Bytes of a copy of a LUKS2 header, unless it says otherwise.
pub(crate) const COPY: u64 = 0x4000;

/// A copy of a LUKS2 header for byte `at` without its checksum.
pub(crate) fn luks2_copy(at: u64, size: u64, sequence: u64, json: &[u8]) -> Vec<u8> {
    let mut header = vec![0; size as usize];
    header[..8].copy_from_slice(if at == 0 {
        b"LUKS\xba\xbe\0\x02"
    } else {
        b"SKUL\xba\xbe\0\x02"
    });
    header[8..16].copy_from_slice(&size.to_be_bytes());
    header[16..24].copy_from_slice(&sequence.to_be_bytes());
    header[72..78].copy_from_slice(b"sha256");
    header[256..264].copy_from_slice(&at.to_be_bytes());
    header[4096..][..json.len()].copy_from_slice(json);
    header
}

/// Gives a copy its checksum and writes it.
pub(crate) fn write_luks2(disk: &MemoryDevice, at: u64, mut header: Vec<u8>) {
    header[448..512].fill(0);
    let sum = Sha256::digest(&header);
    header[448..480].copy_from_slice(&sum);
    disk.write_at(at, &header).unwrap();
}
