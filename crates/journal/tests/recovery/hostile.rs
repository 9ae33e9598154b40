//! Journal maps that name the same blocks repeatedly: reported before memory for their size is
//! allocated.

use std::time::Duration;

use extant_device::{Device, MemoryDevice};
use extant_journal::{Finish, JournalError, recover_volume};
use extant_ondisk::{Flaw, FormatError, InodeNo, Location};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, debugfs, skip, tool};

const BLOCK: u64 = 1024;
/// Offsets of `s_inodes_count`, `s_blocks_count_lo` and `s_inodes_per_group`.
const INODES_COUNT: u64 = 1024;
const BLOCKS_COUNT: u64 = 1024 + 4;
const INODES_PER_GROUP: u64 = 1024 + 40;
/// Number of blocks of a group.
const GROUP: u32 = 8192;
/// Offsets of the size and the map in an inode.
const SIZE: u64 = 4;
const MAP: u64 = 0x28;
/// Number of blocks that the volume and its journal claim to have.
const CLAIMED: u32 = 0xf000_0001;

/// A volume with a journal, and the byte offset of the journal's inode.
fn volume(features: &str) -> Result<(MemoryDevice, u64), String> {
    tool("debugfs").ok_or("debugfs is not installed")?;
    let features = format!("^metadata_csum,^64bit,^resize_inode,{features}");
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024", "-O", &features])?;
    // "Inode 8 is part of block group 0 / located at block 41, offset 0x0700"
    let said = debugfs(&image.path(), "imap <8>")?;
    let number = |word: &str, radix| {
        let text = said.split_once(word)?.1.trim_start_matches("0x");
        let end = text.find(|c: char| !c.is_digit(radix)).unwrap_or(text.len());
        u64::from_str_radix(&text[..end], radix).ok()
    };
    let at = number("located at block ", 10).zip(number("offset ", 16));
    let (block, offset) = at.ok_or(said.clone())?;
    let device = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    Ok((device, block * BLOCK + offset))
}

fn put(device: &MemoryDevice, at: u64, value: u32) {
    device.write_at(at, &value.to_le_bytes()).unwrap();
}

fn is_told_at_once(device: &MemoryDevice) {
    let clock = Env::threads();
    let begun = clock.elapsed();
    let error = recover_volume(device, None, Finish::Reset).unwrap_err();
    let JournalError::Format(FormatError::Corrupt { location, flaw }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(location, Location::Inode(InodeNo(8)));
    assert_eq!(flaw, Flaw::Rule("duplicate block in the journal"));
    let taken = clock.elapsed() - begun;
    assert!(taken < Duration::from_secs(10), "{taken:?}");
}

#[test]
fn extents_of_a_journal_that_lie_on_each_other_are_told() {
    let (device, inode) = match volume("extent") {
        Ok(all) => all,
        Err(why) => skip!("{why}"),
    };
    // Removes the superblock's copy of the map, which would be used instead.
    device.write_at(1024 + 0xfd, &[0]).unwrap();
    let mut extent = [0; 12];
    device.read_at(inode + MAP + 12, &mut extent).unwrap();
    let len = u16::from_le_bytes([extent[4], extent[5]]);
    // Four extents of the same blocks.
    device.write_at(inode + MAP + 2, &4_u16.to_le_bytes()).unwrap();
    for at in 0..4 {
        let part = len / 4;
        extent[..4].copy_from_slice(&(u32::from(part) * at).to_le_bytes());
        extent[4..6].copy_from_slice(&part.to_le_bytes());
        device.write_at(inode + MAP + 12 * (1 + u64::from(at)), &extent).unwrap();
    }
    put(&device, inode + SIZE, u32::from(len / 4) * 4 * BLOCK as u32);
    is_told_at_once(&device);
}

#[test]
fn a_pointer_that_is_met_without_end_is_told() {
    let (device, inode) = match volume("^extent") {
        Ok(all) => all,
        Err(why) => skip!("{why}"),
    };
    device.write_at(1024 + 0xfd, &[0]).unwrap();
    put(&device, BLOCKS_COUNT, CLAIMED);
    let mut per_group = [0; 4];
    device.read_at(INODES_PER_GROUP, &mut per_group).unwrap();
    let inodes = u32::from_le_bytes(per_group) * (CLAIMED / GROUP);
    put(&device, INODES_COUNT, inodes);
    // The size in bytes, in two halves.
    let size = u64::from(CLAIMED) * BLOCK;
    put(&device, inode + SIZE, (size & 0xffff_ffff) as u32);
    put(&device, inode + 0x6c, (size >> 32) as u32);
    // A block full of its own number, on each level.
    let own: u32 = 16_000;
    device.write_at(u64::from(own) * BLOCK, &own.to_le_bytes().repeat(256)).unwrap();
    for slot in 0..15 {
        put(&device, inode + MAP + 4 * slot, own - slot.min(12) as u32);
    }
    for slot in 13..15 {
        put(&device, inode + MAP + 4 * slot, own);
    }
    put(&device, inode + MAP + 4 * 12, own);
    is_told_at_once(&device);
}
