//! Random bytes of the records of the reserved inodes and of lost+found: our findings compared with
//! those of e2fsck, before and after a repair.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use extant_check::{AutoPolicy, Code};
use extant_ondisk::InodeNo;
use extant_testkit::{TempImage, copied, e2fsck_fn, skip, tool, tree::Random};

use super::damages::Requested;
use super::hand::{Base, EXT2, EXT4, Hand, PLAIN, QUOTA, device, fsck, put16, put32, scan};

/// Block-mapped, with a journal.
const EXT3: Base =
    Base { name: "ext3", mke2fs: &["-t", "ext3", "-b", "1024", "-I", "256"], ..EXT2 };

const BASES: [Base; 5] = [EXT2, EXT3, EXT4, PLAIN, QUOTA];
/// Bytes that an ordinary test run changes; `EXTANT_BYTES` sets another number.
const FEW: u64 = 150;
/// The last reserved inode, and lost+found after it.
const LAST: u64 = 11;

/// Flaws that e2fsck 1.47.0 does not find: inodes, bytes of their records, and the reason why we
/// find it.
const STRICTER: &[(RangeInclusive<u32>, RangeInclusive<usize>, &str)] = &[
    (7..=7, 0x1a..=0x1b, "the resize inode has one link"),
    (7..=7, 0x20..=0x23, "the flag of a feature that the volume lacks"),
    (7..=7, 0x68..=0x77, "an attribute block off the volume"),
    (3..=4, 0x80..=0x81, "the kernel reads no inode with such an i_extra_isize"),
    (7..=8, 0x80..=0x81, "the kernel mounts no volume with such an i_extra_isize"),
    (8..=8, 0x04..=0x07, "e2fsck gives up if such a journal is to be replayed"),
    (8..=8, 0x6c..=0x6f, "the same"),
    (8..=8, 0x20..=0x23, "a journal is not encrypted"),
    (1..=1, 0x20..=0x23, "the list of bad blocks has no extents"),
    (1..=11, 0x20..=0x23, "1.47.4 finds a needless ea_inode flag, too"),
];

/// The effect of one changed byte.
struct Trial {
    what: String,
    found: Vec<Code>,
    is_found_by_e2fsck: bool,
    flaws: Vec<String>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn changed(byte: u8, random: &mut Random) -> u8 {
    match random.below(4) {
        0 => byte ^ 1 << random.below(8),
        1 => !byte,
        2 => byte.wrapping_add(1),
        _ => random.number() as u8,
    }
}

fn run(base: &Base, healthy: &TempImage, random: &mut Random) -> Option<Trial> {
    let image = copied(&healthy.path()).expect("a copy");
    let hand = Hand::on(&image.path());
    let ino = InodeNo(1 + random.below(LAST) as u32);
    let size = u64::from(hand.volume.geometry().inode_size);
    let at = random.below(size) as usize;
    let (mut before, mut after) = (0, 0);
    hand.inode(ino, |record| {
        before = record[at];
        record[at] = changed(before, random);
        after = record[at];
    });
    drop(hand);
    if before == after {
        return None;
    }
    let mut flaws = Vec::new();
    let found = scan(&image.path(), Requested::Nothing).unwrap_or_else(|error| {
        flaws.push(error);
        Vec::new()
    });
    let is_found = found.iter().any(|code| code.counts_when_left());
    let said = e2fsck_fn(&image.path());
    let is_stricter =
        STRICTER.iter().any(|(inodes, bytes, _)| inodes.contains(&ino.0) && bytes.contains(&at));
    if is_found != said.is_err() && !(is_found && is_stricter) {
        flaws.push(format!("e2fsck says {said:?}"));
    }
    if is_found || said.is_err() {
        let done = fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing);
        let again = scan(&image.path(), Requested::Nothing);
        if done.is_err() || again.as_ref().is_ok_and(|codes| !codes.is_empty()) {
            flaws.push(format!("a second run finds {again:?} after {done:?}"));
        }
        if let Err(said) = e2fsck_fn(&image.path()) {
            flaws.push(format!("e2fsck afterwards: {said}"));
        }
    }
    let what = format!("{}: inode {ino}, byte {at:#x}: {before:#x} becomes {after:#x}", base.name);
    Some(Trial { what, found, is_found_by_e2fsck: said.is_err(), flaws })
}

#[test]
fn a_byte_of_a_reserved_inode_is_checked_as_by_e2fsck() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let mut random = Random::new(number("EXTANT_SEED").unwrap_or(1));
    let count = number("EXTANT_BYTES").unwrap_or(FEW) / BASES.len() as u64;
    let mut wrong = String::new();
    let mut of_both = 0;
    for base in &BASES {
        let healthy = base.make();
        for _ in 0..count {
            let Some(trial) = run(base, &healthy, &mut random) else { continue };
            of_both += u64::from(trial.is_found_by_e2fsck && !trial.found.is_empty());
            if !trial.flaws.is_empty() {
                let flaws = trial.flaws.join("\n  ");
                let _ = writeln!(wrong, "{}: {:?}\n  {flaws}", trial.what, trial.found);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(of_both > 0, "no change was found by both");
}

/// The boot loader's inode may have any type but that of a directory; its space is checked.
#[test]
fn the_space_of_a_boot_loader_is_checked() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for base in [EXT2, EXT4] {
        let healthy = base.make();
        for mode in [0, 0o124_000, 0o010_600, 0o100_600, 0o120_777, 0o030_000] {
            for (at, value) in [(0x1c, 999), (0x6c, 0x1000), (4, 99)] {
                let image = copied(&healthy.path()).expect("a copy");
                Hand::on(&image.path()).inode(InodeNo(5), |record| {
                    put16(record, 0, mode);
                    put32(record, at, value);
                });
                let what = format!("{}, {mode:o}, {at:#x}", base.name);
                let is_flaw = e2fsck_fn(&image.path()).is_err();
                assert!(is_flaw || at != 0x1c, "{what}");
                let found = scan(&image.path(), Requested::Nothing).expect("it is looked at");
                assert_eq!(!found.is_empty(), is_flaw, "{what}: {found:?}");
                fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing)
                    .expect("it is repaired");
                e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
                assert_eq!(scan(&image.path(), Requested::Nothing), Ok(Vec::new()), "{what}");
            }
        }
    }
}

/// Reserved inodes without a mode that have the flags of two maps: as e2fsck says, whatever they
/// hold.
#[test]
fn flags_of_two_maps_of_a_spare_inode_are_found() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    const BOTH: u32 = 0x1008_0000;
    const EXTENTS: u32 = 0x8_0000;
    const INLINE_DATA: u32 = 0x1000_0000;
    for base in [EXT4, PLAIN] {
        let healthy = base.make();
        for number in [5, 6, 9, 10] {
            // Nothing, junk, the header of an extent map without extents, a block.
            for words in [[0, 0], [0x12345, 0], [0xf30a, 4], [0x1f45, 0]] {
                for flags in [BOTH, EXTENTS, INLINE_DATA] {
                    let image = copied(&healthy.path()).expect("a copy");
                    Hand::on(&image.path()).inode(InodeNo(number), |record| {
                        put32(record, 0x20, flags);
                        put32(record, 0x28, words[0]);
                        put32(record, 0x2c, words[1]);
                    });
                    let what = format!("{}, {number}, {words:x?}, {flags:x}", base.name);
                    let is_flaw = e2fsck_fn(&image.path()).is_err();
                    let found = scan(&image.path(), Requested::Nothing).expect("it is looked at");
                    assert_eq!(!found.is_empty(), is_flaw, "{what}: {found:?}");
                    fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing)
                        .expect("it is repaired");
                    e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
                    assert_eq!(scan(&image.path(), Requested::Nothing), Ok(Vec::new()), "{what}");
                }
            }
        }
    }
}
