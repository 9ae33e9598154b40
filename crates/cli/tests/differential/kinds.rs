//! The kinds of damage. Each is a row: a name, what it falls on, and what is done.

use std::path::Path;

use extant::rooms::device::Device;
use extant::rooms::ondisk::BlockNo;
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

/// How the bytes of one structure change.
#[derive(Clone, Copy)]
enum Act {
    /// By themselves; what was done.
    Change(fn(&mut [u8], &mut Random) -> String),
    /// They become those of another structure of the kind.
    Replace,
    /// The same, and the other way round.
    Swap,
    /// They become those of the earlier state.
    Stale,
}

use Act::{Change, Replace, Stale, Swap};

/// Where the structures of a kind lie.
type Pool = fn(&Site<'_>) -> Vec<Target>;

/// Damage to more than one structure; what was done.
type OnVolume = fn(&Site<'_>, &mut Random) -> String;

/// A kind of damage: what was hit, and what was done to it.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) structure: &'static str,
    pub(crate) act: &'static str,
}

/// The targets of one kind of structure.
fn targets(site: &Site<'_>, is_it: fn(&Structure) -> bool) -> Vec<Target> {
    let kind = site.targets.kinds.iter().find(|kind| is_it(&kind[0].structure));
    kind.cloned().unwrap_or_default()
}

/// A block that has no checksum of its own.
fn plain(site: &Site<'_>, block: BlockNo) -> Target {
    let geometry = &site.targets.geometry;
    Target {
        structure: Structure::Indirect,
        offset: geometry.byte_of(block),
        length: geometry.block_len(),
    }
}

fn log_blocks(site: &Site<'_>) -> Vec<Target> {
    site.log.iter().map(|block| plain(site, *block)).collect()
}

/// The blocks of the tables that inodes in use lie in.
fn table_blocks(site: &Site<'_>) -> Vec<Target> {
    let bits = site.targets.geometry.block_bits();
    let inodes = targets(site, |it| matches!(it, Structure::Inode(_)));
    let mut blocks: Vec<_> = inodes.iter().map(|inode| inode.offset >> bits).collect();
    blocks.dedup();
    blocks.into_iter().map(|block| plain(site, BlockNo(block))).collect()
}

macro_rules! pool {
    ($structure:pat) => {
        |site| targets(site, |it| matches!(it, $structure))
    };
}

const STRUCTURES: &[(&str, Pool)] = &[
    ("superblock", pool!(Structure::Superblock)),
    ("descriptor", pool!(Structure::Desc(_))),
    ("block bitmap", pool!(Structure::BlockBitmap(_))),
    ("inode bitmap", pool!(Structure::InodeBitmap(_))),
    ("inode", pool!(Structure::Inode(_))),
    ("inode table block", table_blocks),
    ("extent block", pool!(Structure::ExtentNode(_))),
    ("indirect block", pool!(Structure::Indirect)),
    ("directory block", pool!(Structure::Leaf(_))),
    ("htree block", pool!(Structure::Index(..))),
    ("attribute block", pool!(Structure::Attributes(_))),
    ("quota file", pool!(Structure::Quota)),
    ("orphan file", pool!(Structure::Orphans(..))),
    ("journal superblock", pool!(Structure::Journal)),
    ("log block", log_blocks),
];

/// Whether the checksum is made to fit, and what is done.
const ACTS: &[(&str, bool, Act)] = &[
    ("bits", false, Change(bits)),
    ("a field, sealed", true, Change(field)),
    ("two fields, sealed", true, Change(two_fields)),
    ("zeroed", false, Change(zeroed)),
    ("garbage", false, Change(garbage)),
    ("garbage, sealed", true, Change(garbage)),
    ("its end is garbage", false, Change(tail)),
    ("shifted", false, Change(shifted)),
    ("copy of another, sealed", true, Replace),
    ("swapped", false, Swap),
    ("swapped, sealed", true, Swap),
    ("stale", false, Stale),
];

/// Damage to more than one structure, or to one field of it. The first makes the volume
/// shorter.
const VOLUME: &[(Kind, OnVolume)] = &[
    (Kind { structure: "volume", act: "truncated" }, truncated),
    (Kind { structure: "superblock and descriptors", act: "zeroed" }, front_zeroed),
    (Kind { structure: "inode", act: "another mode, sealed" }, mode),
    (Kind { structure: "any structure", act: "any field" }, any_field),
    (Kind { structure: "any structure", act: "displaced" }, displaced),
    (Kind { structure: "any structure", act: "looks sound" }, looks_sound),
    (Kind { structure: "volume", act: "many bits" }, many_bits),
    (Kind { structure: "volume", act: "two states mixed" }, mixed),
];
const PAIR: Kind = Kind { structure: "two of these", act: "two damages" };

/// Damage of some kind; what was done.
pub(crate) fn damage(site: &Site<'_>, random: &mut Random) -> (Kind, String) {
    if random.below(8) > 0 {
        return one(site, VOLUME, random);
    }
    // Truncated parts cannot be damaged any more.
    let (_, first) = one(site, &VOLUME[1..], random);
    let (_, second) = one(site, VOLUME, random);
    (PAIR, format!("{first}; {second}"))
}

/// One kind that the volume can have, or one of `volume`.
fn one(site: &Site<'_>, volume: &[(Kind, OnVolume)], random: &mut Random) -> (Kind, String) {
    if random.below(8) == 0 {
        let (kind, act) = volume[random.below(volume.len() as u64) as usize];
        return (kind, act(site, random));
    }
    loop {
        let (structure, pool) = STRUCTURES[random.below(STRUCTURES.len() as u64) as usize];
        let (name, is_sealed, act) = ACTS[random.below(ACTS.len() as u64) as usize];
        let pool = pool(site);
        if pool.is_empty() {
            continue;
        }
        let target = pool[random.below(pool.len() as u64) as usize];
        if let Some(done) = hit(site, &target, &pool, (is_sealed, act), random) {
            let done = format!("{structure} ({}) at {:#x}: {done}", target.name(), target.offset);
            return (Kind { structure, act: name }, done);
        }
    }
}

/// Damages one structure; what was done, where that changes anything.
fn hit(
    site: &Site<'_>,
    target: &Target,
    pool: &[Target],
    (is_sealed, act): (bool, Act),
    random: &mut Random,
) -> Option<String> {
    let other = &pool[random.below(pool.len() as u64) as usize];
    let before = read(site, target);
    let mut bytes = before.clone();
    let done = match act {
        Change(change) => change(&mut bytes, random),
        Replace | Swap => {
            bytes = read(site, other);
            bytes.resize(target.length, 0);
            let how = if matches!(act, Replace) { "copy of" } else { "swapped with" };
            format!("{how} {:#x}", other.offset)
        }
        Stale => {
            let from = target.offset as usize;
            bytes.copy_from_slice(&site.older[from..from + target.length]);
            "as it was before".to_owned()
        }
    };
    if bytes == before {
        return None;
    }
    write(site, target, bytes, is_sealed);
    if matches!(act, Swap) {
        let mut bytes = before;
        bytes.resize(other.length, 0);
        write(site, other, bytes, is_sealed);
    }
    Some(if is_sealed { done + ", sealed" } else { done })
}

fn read(site: &Site<'_>, target: &Target) -> Vec<u8> {
    let mut bytes = vec![0; target.length];
    open(site.image, false).read_at(target.offset, &mut bytes).expect("reads");
    bytes
}

fn write(site: &Site<'_>, target: &Target, mut bytes: Vec<u8>, is_sealed: bool) {
    let device = open(site.image, true);
    if is_sealed {
        seal(&mut bytes, target, &site.targets.geometry, &*device);
    }
    device.write_at(target.offset, &bytes).expect("writes");
}

fn bits(bytes: &mut [u8], random: &mut Random) -> String {
    let count = 1 + random.below(4);
    for _ in 0..count {
        let bit = random.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
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

/// Near the front, where most fields are, or anywhere.
fn field(bytes: &mut [u8], random: &mut Random) -> String {
    let reach = if random.below(2) == 0 { 128 } else { bytes.len() };
    change_word(bytes, reach, random)
}

fn two_fields(bytes: &mut [u8], random: &mut Random) -> String {
    field(bytes, random) + ", " + &field(bytes, random)
}

fn zeroed(bytes: &mut [u8], _: &mut Random) -> String {
    bytes.fill(0);
    "zeros".to_owned()
}

fn garbage(bytes: &mut [u8], random: &mut Random) -> String {
    bytes.copy_from_slice(&random.bytes(bytes.len()));
    "garbage".to_owned()
}

fn tail(bytes: &mut [u8], random: &mut Random) -> String {
    let from = random.below(bytes.len() as u64) as usize;
    garbage(&mut bytes[from..], random);
    format!("garbage from {from:#x}")
}

fn shifted(bytes: &mut [u8], random: &mut Random) -> String {
    let by = [1, 4, 8, 12, 64, 128][random.below(6) as usize] % bytes.len();
    bytes.rotate_right(by);
    format!("shifted by {by} bytes")
}

fn mode(site: &Site<'_>, random: &mut Random) -> String {
    let inodes = targets(site, |it| matches!(it, Structure::Inode(_)));
    let target = inodes[random.below(inodes.len() as u64) as usize];
    let mut bytes = read(site, &target);
    bytes[1] = (bytes[1] & 0x0f) | (random.below(16) as u8) << 4;
    let done = format!("{}: type {:#x}", target.name(), bytes[1] >> 4);
    write(site, &target, bytes, true);
    done
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
        let block = plain(site, BlockNo(random.below(geometry.blocks_count.min(2000))));
        let mut bytes = read(site, &block);
        bits(&mut bytes, random);
        write(site, &block, bytes, false);
    }
    format!("bits in {count} blocks of the front")
}

/// Every second structure, or every 32nd, is that of the earlier state.
fn mixed(site: &Site<'_>, random: &mut Random) -> String {
    let one_in = 1 << (1 + random.below(5));
    let mut count = 0;
    for target in site.targets.kinds.iter().flatten() {
        if random.below(one_in) == 0 {
            hit(site, target, &[*target], (false, Stale), random);
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
