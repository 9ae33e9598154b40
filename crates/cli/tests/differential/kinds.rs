//! The kinds of damage. Each is a row: a name, what it falls on, and what is done.

use std::path::Path;

use extant_device::Device;
use extant_ondisk::BlockNo;
use extant_testkit::tree::Random;

use crate::aim::{self, Structure, Target, Targets, seal};
use crate::common::open;
use crate::cross;

/// A damaged volume in the making.
pub(crate) struct Site<'a> {
    pub(crate) image: &'a Path,
    pub(crate) targets: &'a Targets,
    pub(crate) older: &'a [u8],
    pub(crate) log: &'a [BlockNo],
}

/// What a kind of damage falls on.
#[derive(Clone, Copy)]
enum On {
    /// One structure, where the volume has one.
    One(fn(&Structure) -> bool, fn(&Site<'_>, &Target, &mut Random) -> String),
    /// A block of the log.
    Log(fn(&Site<'_>, &Target, &mut Random) -> String),
    /// A block of an inode table.
    Table(fn(&Site<'_>, &Target, &mut Random) -> String),
    Volume(fn(&Site<'_>, &mut Random) -> String),
}

use On::{Log, One, Table, Volume};

fn superblock(it: &Structure) -> bool {
    matches!(it, Structure::Superblock)
}
fn descriptor(it: &Structure) -> bool {
    matches!(it, Structure::Desc(_))
}
fn block_bitmap(it: &Structure) -> bool {
    matches!(it, Structure::BlockBitmap(_))
}
fn inode_bitmap(it: &Structure) -> bool {
    matches!(it, Structure::InodeBitmap(_))
}
fn inode(it: &Structure) -> bool {
    matches!(it, Structure::Inode(_))
}
fn extents(it: &Structure) -> bool {
    matches!(it, Structure::ExtentNode(_))
}
fn indirect(it: &Structure) -> bool {
    matches!(it, Structure::Indirect)
}
fn directory(it: &Structure) -> bool {
    matches!(it, Structure::Leaf(_))
}
fn htree(it: &Structure) -> bool {
    matches!(it, Structure::Index(..))
}
fn attributes(it: &Structure) -> bool {
    matches!(it, Structure::Attributes(_))
}
fn journal(it: &Structure) -> bool {
    matches!(it, Structure::Journal)
}
fn orphans(it: &Structure) -> bool {
    matches!(it, Structure::Orphans(..))
}
fn quota(it: &Structure) -> bool {
    matches!(it, Structure::Quota)
}

const KINDS: &[(&str, On)] = &[
    ("superblock: bits", One(superblock, bits)),
    ("superblock: a field, sealed", One(superblock, field)),
    ("superblock: zeroed", One(superblock, zeroed)),
    ("superblock: stale", One(superblock, stale)),
    ("superblock and descriptors: zeroed", Volume(front_zeroed)),
    ("descriptor: bits", One(descriptor, bits)),
    ("descriptor: a field, sealed", One(descriptor, field)),
    ("descriptor: zeroed", One(descriptor, zeroed)),
    ("descriptor: of another group, sealed", One(descriptor, of_another)),
    ("block bitmap: zeroed", One(block_bitmap, zeroed)),
    ("block bitmap: garbage", One(block_bitmap, garbage)),
    ("block bitmap: stale", One(block_bitmap, stale)),
    ("inode bitmap: zeroed", One(inode_bitmap, zeroed)),
    ("inode bitmap: garbage, sealed", One(inode_bitmap, garbage_sealed)),
    ("inode bitmap: swapped", One(inode_bitmap, swapped)),
    ("inode: bits", One(inode, bits)),
    ("inode: a field, sealed", One(inode, field)),
    ("inode: zeroed", One(inode, zeroed)),
    ("inode: shifted", One(inode, shifted)),
    ("inode: of another, sealed", One(inode, of_another)),
    ("inode: swapped", One(inode, swapped)),
    ("inode: stale", One(inode, stale)),
    ("inode: mode, sealed", One(inode, mode)),
    ("inode table block: zeroed", Table(zeroed)),
    ("inode table block: garbage", Table(garbage)),
    ("inode table block: shifted", Table(shifted)),
    ("inode table block: stale", Table(stale)),
    ("extent block: bits", One(extents, bits)),
    ("extent block: a field, sealed", One(extents, field)),
    ("extent block: zeroed", One(extents, zeroed)),
    ("extent block: swapped", One(extents, swapped)),
    ("indirect block: a number", One(indirect, word)),
    ("indirect block: garbage", One(indirect, garbage)),
    ("indirect block: zeroed", One(indirect, zeroed)),
    ("indirect block: shifted", One(indirect, shifted)),
    ("directory block: bits", One(directory, bits)),
    ("directory block: two fields, sealed", One(directory, two_words)),
    ("directory block: zeroed", One(directory, zeroed)),
    ("directory block: shifted", One(directory, shifted)),
    ("directory block: swapped, sealed", One(directory, swapped_sealed)),
    ("directory block: stale", One(directory, stale)),
    ("directory block: its end is garbage", One(directory, tail)),
    ("htree block: bits", One(htree, bits)),
    ("htree block: a field, sealed", One(htree, field)),
    ("htree block: zeroed", One(htree, zeroed)),
    ("htree block: garbage", One(htree, garbage)),
    ("attribute block: bits", One(attributes, bits)),
    ("attribute block: a field, sealed", One(attributes, field)),
    ("attribute block: garbage", One(attributes, garbage)),
    ("attribute block: swapped", One(attributes, swapped)),
    ("quota file: a number", One(quota, word)),
    ("quota file: zeroed", One(quota, zeroed)),
    ("orphan file: a number, sealed", One(orphans, word)),
    ("orphan file: garbage", One(orphans, garbage)),
    ("journal superblock: bits", One(journal, bits)),
    ("journal superblock: a field, sealed", One(journal, field)),
    ("journal superblock: zeroed", One(journal, zeroed)),
    ("journal superblock: stale", One(journal, stale)),
    ("log block: bits", Log(bits)),
    ("log block: zeroed", Log(zeroed)),
    ("log block: garbage", Log(garbage)),
    ("log block: stale", Log(stale)),
    ("any structure: any field", Volume(any_field)),
    ("any structure: displaced", Volume(displaced)),
    ("any structure: looks sound", Volume(looks_sound)),
    ("volume: many bits", Volume(many_bits)),
    ("volume: blocks of two states mixed", Volume(mixed)),
    ("volume: truncated", Volume(truncated)),
];

/// One kind that the volume can have; its name, and what was done.
pub(crate) fn damage(site: &mut Site<'_>, random: &mut Random) -> (&'static str, String) {
    loop {
        let (name, on) = KINDS[random.below(KINDS.len() as u64) as usize];
        let done = match on {
            One(is_it, act) => {
                let kind = site.targets.kinds.iter().find(|kind| is_it(&kind[0].structure));
                kind.map(|kind| {
                    let target = &kind[random.below(kind.len() as u64) as usize];
                    format!(
                        "{} at {:#x}: {}",
                        target.name(),
                        target.offset,
                        act(site, target, random)
                    )
                })
            }
            Log(act) => log_block(site, random).map(|target| {
                format!("log block at {:#x}: {}", target.offset, act(site, &target, random))
            }),
            Table(act) => {
                let target = table_block(site, random);
                Some(format!("table block at {:#x}: {}", target.offset, act(site, &target, random)))
            }
            Volume(act) => Some(act(site, random)),
        };
        if let Some(done) = done {
            return (name, done);
        }
    }
}

/// A block that has no checksum of its own.
fn plain(site: &Site<'_>, block: u64) -> Target {
    let geometry = &site.targets.geometry;
    Target {
        structure: Structure::Indirect,
        offset: geometry.byte_of(BlockNo(block)),
        length: geometry.block_len(),
    }
}

fn log_block(site: &Site<'_>, random: &mut Random) -> Option<Target> {
    let count = site.log.len() as u64;
    (count > 0).then(|| plain(site, site.log[random.below(count) as usize].0))
}

/// The block of the table that some inode in use lies in.
fn table_block(site: &Site<'_>, random: &mut Random) -> Target {
    let kinds = &site.targets.kinds;
    let inodes = kinds.iter().find(|kind| inode(&kind[0].structure)).expect("a root at least");
    let one = inodes[random.below(inodes.len() as u64) as usize];
    plain(site, one.offset >> site.targets.geometry.block_bits())
}

fn read(site: &Site<'_>, target: &Target) -> Vec<u8> {
    let mut bytes = vec![0; target.length];
    open(site.image, false).read_at(target.offset, &mut bytes).expect("reads");
    bytes
}

fn write(site: &Site<'_>, target: &Target, bytes: &[u8]) {
    open(site.image, true).write_at(target.offset, bytes).expect("writes");
}

fn write_sealed(site: &Site<'_>, target: &Target, mut bytes: Vec<u8>) {
    let device = open(site.image, true);
    seal(&mut bytes, target, &site.targets.geometry, &*device);
    device.write_at(target.offset, &bytes).expect("writes");
}

/// Another structure of the same kind, where there is one.
fn another<'a>(site: &Site<'a>, target: &Target, random: &mut Random) -> Option<&'a Target> {
    let kind = std::mem::discriminant(&target.structure);
    let targets: &'a Targets = site.targets;
    let all = targets.kinds.iter().find(|all| std::mem::discriminant(&all[0].structure) == kind)?;
    let other = &all[random.below(all.len() as u64) as usize];
    (other.offset != target.offset).then_some(other)
}

fn bits(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    let mut bytes = read(site, target);
    let count = 1 + random.below(4);
    for _ in 0..count {
        let bit = random.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    write(site, target, &bytes);
    format!("{count} bits")
}

fn change_word(bytes: &mut [u8], reach: usize, random: &mut Random) -> String {
    let width = 1 << random.below(3);
    let at = random.below(reach.min(bytes.len()) as u64 / width as u64) as usize * width;
    let value = match random.below(4) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(4096),
        _ => random.number(),
    };
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    format!("{at:#x} becomes {:02x?}", &bytes[at..at + width])
}

/// Near the front, where most fields are.
fn field(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    let mut bytes = read(site, target);
    let reach = if random.below(2) == 0 { 128 } else { bytes.len() };
    let done = change_word(&mut bytes, reach, random);
    write_sealed(site, target, bytes);
    done
}

fn word(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    let mut bytes = read(site, target);
    let reach = bytes.len();
    let done = change_word(&mut bytes, reach, random);
    write_sealed(site, target, bytes);
    done
}

fn two_words(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    word(site, target, random) + ", " + &word(site, target, random)
}

fn mode(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    let mut bytes = read(site, target);
    bytes[1] = (bytes[1] & 0x0f) | (random.below(16) as u8) << 4;
    let done = format!("type {:#x}", bytes[1] >> 4);
    write_sealed(site, target, bytes);
    done
}

fn zeroed(site: &Site<'_>, target: &Target, _: &mut Random) -> String {
    write(site, target, &vec![0; target.length]);
    "zeros".to_owned()
}

fn garbage(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    write(site, target, &random.bytes(target.length));
    "garbage".to_owned()
}

fn garbage_sealed(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    write_sealed(site, target, random.bytes(target.length));
    "garbage, sealed".to_owned()
}

fn tail(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    let mut bytes = read(site, target);
    let from = random.below(target.length as u64) as usize;
    let rest = random.bytes(target.length - from);
    bytes[from..].copy_from_slice(&rest);
    write(site, target, &bytes);
    format!("garbage from {from:#x}")
}

fn shifted(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    let mut bytes = read(site, target);
    let by = [1, 4, 8, 12, 64, 128][random.below(6) as usize] % bytes.len();
    bytes.rotate_right(by);
    write(site, target, &bytes);
    format!("shifted by {by} bytes")
}

fn of_another(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    let Some(other) = another(site, target, random) else { return bits(site, target, random) };
    let mut bytes = read(site, other);
    bytes.resize(target.length, 0);
    write_sealed(site, target, bytes);
    format!("copy of {:#x}, sealed", other.offset)
}

fn swap(site: &Site<'_>, target: &Target, is_sealed: bool, random: &mut Random) -> String {
    let Some(other) = another(site, target, random) else { return bits(site, target, random) };
    let (mut one, mut two) = (read(site, target), read(site, other));
    one.resize(other.length, 0);
    two.resize(target.length, 0);
    if is_sealed {
        write_sealed(site, target, two);
        write_sealed(site, other, one);
    } else {
        write(site, target, &two);
        write(site, other, &one);
    }
    format!("swapped with {:#x}", other.offset)
}

fn swapped(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    swap(site, target, false, random)
}

fn swapped_sealed(site: &Site<'_>, target: &Target, random: &mut Random) -> String {
    swap(site, target, true, random)
}

fn stale(site: &Site<'_>, target: &Target, _: &mut Random) -> String {
    let from = target.offset as usize;
    write(site, target, &site.older[from..from + target.length]);
    "as it was before".to_owned()
}

fn front_zeroed(site: &Site<'_>, random: &mut Random) -> String {
    let geometry = &site.targets.geometry;
    let blocks = 1 + random.below(u64::from(geometry.desc_blocks()) + 1);
    let bytes = vec![0; blocks as usize * geometry.block_len()];
    let from = geometry.byte_of(geometry.superblock_block());
    open(site.image, true).write_at(from, &bytes).expect("writes");
    format!("{blocks} blocks of zeros from {from:#x}")
}

fn any_field(site: &Site<'_>, random: &mut Random) -> String {
    aim::damage(site.image, site.targets, random.number())
}

fn displaced(site: &Site<'_>, random: &mut Random) -> String {
    aim::displace(site.image, site.targets, random.number())
}

fn looks_sound(site: &Site<'_>, random: &mut Random) -> String {
    cross::damage(site.image, site.targets, random.number())
}

fn many_bits(site: &Site<'_>, random: &mut Random) -> String {
    let geometry = &site.targets.geometry;
    let count = 20 + random.below(200);
    for _ in 0..count {
        let block = plain(site, random.below(geometry.blocks_count.min(2000)));
        bits(site, &block, random);
    }
    format!("bits in {count} blocks of the front")
}

/// Every second structure, or every 32nd, is that of the earlier state.
fn mixed(site: &Site<'_>, random: &mut Random) -> String {
    let one_in = 1 << (1 + random.below(5));
    let mut count = 0;
    for target in site.targets.kinds.iter().flatten() {
        if random.below(one_in) == 0 {
            stale(site, target, random);
            count += 1;
        }
    }
    format!("{count} structures of the earlier state")
}

fn truncated(site: &Site<'_>, random: &mut Random) -> String {
    let file = std::fs::File::options().write(true).open(site.image).expect("it is there");
    let bytes = file.metadata().expect("it is there").len();
    let left = bytes - 1 - random.below(bytes / 4);
    file.set_len(left).expect("it becomes shorter");
    format!("{left} of {bytes} bytes left")
}
