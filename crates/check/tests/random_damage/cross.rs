//! Damage in valid form: fields get values at the edge of their range, or those of others; maps
//! lead into other files; blocks overlap; records of one directory are copied into another.
//! Checksums match. One in three has two of these.

use std::path::Path;

use extant_device::Device;
use extant_ondisk::{BlockNo, Geometry};
use extant_testkit::tree::Random;

use super::aim::{Structure, Target, Targets, seal};
use super::common::open;

/// A field: where it starts, and its bytes.
type Field = (usize, usize);

/// Fields of a superblock that something is computed from, but for its magic number.
const SUPERBLOCK: &[Field] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0c, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1c, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x2c, 4),
    (0x30, 4),
    (0x34, 2),
    (0x36, 2),
    (0x3a, 2),
    (0x3c, 2),
    (0x3e, 2),
    (0x40, 4),
    (0x44, 4),
    (0x48, 4),
    (0x4c, 4),
    (0x50, 2),
    (0x54, 4),
    (0x58, 2),
    (0x5a, 2),
    (0x5c, 4),
    (0x60, 4),
    (0x64, 4),
    (0x68, 4),
    (0xcc, 1),
    (0xce, 2),
    (0xd0, 4),
    (0xe0, 4),
    (0xe4, 4),
    (0xe8, 4),
    (0xec, 4),
    (0xfc, 1),
    (0xfd, 1),
    (0xfe, 2),
    (0x100, 4),
    (0x104, 4),
    (0x10c, 4),
    (0x148, 4),
    (0x150, 4),
    (0x154, 4),
    (0x158, 4),
    (0x15c, 2),
    (0x15e, 2),
    (0x160, 4),
    (0x164, 2),
    (0x166, 2),
    (0x168, 4),
    (0x170, 4),
    (0x174, 1),
    (0x175, 1),
    (0x176, 1),
    (0x178, 4),
    (0x194, 4),
    (0x240, 4),
    (0x244, 4),
    (0x24c, 4),
    (0x250, 4),
    (0x254, 1),
    (0x268, 4),
    (0x26c, 4),
    (0x270, 4),
    (0x27c, 2),
    (0x280, 4),
];
const DESC: &[Field] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0c, 2),
    (0x0e, 2),
    (0x10, 2),
    (0x12, 2),
    (0x12, 1),
    (0x18, 2),
    (0x1a, 2),
    (0x1c, 2),
    (0x20, 4),
    (0x28, 4),
    (0x2c, 2),
    (0x2e, 2),
    (0x32, 2),
];
const INODE: &[Field] = &[
    (0x00, 2),
    (0x02, 2),
    (0x04, 4),
    (0x08, 4),
    (0x14, 4),
    (0x1a, 2),
    (0x1c, 4),
    (0x20, 4),
    (0x28, 2),
    (0x2a, 2),
    (0x2c, 2),
    (0x2e, 2),
    (0x34, 4),
    (0x38, 2),
    (0x3a, 2),
    (0x3c, 4),
    (0x40, 4),
    (0x44, 2),
    (0x46, 2),
    (0x48, 4),
    (0x54, 4),
    (0x58, 4),
    (0x5c, 4),
    (0x60, 4),
    (0x64, 4),
    (0x68, 4),
    (0x6c, 4),
    (0x70, 4),
    (0x74, 2),
    (0x76, 2),
    (0x78, 2),
    (0x80, 2),
    (0x84, 4),
    (0x88, 4),
    (0x98, 4),
    (0x9c, 4),
    (0xa0, 4),
    (0xa4, 4),
    (0xa4, 1),
    (0xa5, 1),
    (0xa6, 2),
    (0xa8, 4),
    (0xac, 4),
    (0xb0, 4),
];
const NODE: &[Field] = &[
    (0x00, 2),
    (0x02, 2),
    (0x04, 2),
    (0x06, 2),
    (0x0c, 4),
    (0x10, 2),
    (0x10, 4),
    (0x12, 2),
    (0x14, 4),
    (0x18, 4),
    (0x1c, 2),
    (0x1c, 4),
    (0x1e, 2),
    (0x20, 4),
    (0x24, 4),
    (0x2c, 4),
];
const INDEX: &[Field] = &[
    (0x00, 4),
    (0x04, 2),
    (0x0c, 4),
    (0x10, 2),
    (0x18, 4),
    (0x1c, 1),
    (0x1d, 1),
    (0x1e, 1),
    (0x1f, 1),
    (0x08, 2),
    (0x0a, 2),
    (0x20, 2),
    (0x22, 2),
    (0x24, 4),
    (0x28, 4),
    (0x2c, 4),
    (0x30, 4),
    (0x34, 4),
];
const ATTRIBUTES: &[Field] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0c, 4),
    (0x20, 1),
    (0x21, 1),
    (0x22, 2),
    (0x24, 4),
    (0x28, 4),
    (0x2c, 4),
    (0x30, 1),
    (0x34, 1),
    (0x38, 4),
];
/// Of a journal's superblock; big-endian.
const JOURNAL: &[Field] = &[
    (0x04, 4),
    (0x0c, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1c, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x2c, 4),
    (0x40, 4),
    (0x50, 1),
    (0x54, 4),
    (0x58, 4),
];
const MMP: &[Field] = &[(0x00, 4), (0x04, 4), (0x08, 4)];
const QUOTA: &[Field] =
    &[(0x00, 4), (0x04, 4), (0x08, 4), (0x10, 4), (0x14, 4), (0x18, 4), (0x1c, 4)];

/// Spoils one thing, or two; what was done.
pub(crate) fn damage(image: &Path, targets: &Targets, seed: u64) -> String {
    let mut random = Random::new(seed ^ 0xc705_5000);
    let device = open(image, true);
    let times = if random.below(3) == 0 { 2 } else { 1 };
    let done: Vec<String> = (0..times)
        .map(|_| match random.below(16) {
            0..8 => edge(&*device, targets, &mut random),
            8..10 => map_of_another(&*device, targets, &mut random),
            10..12 => block_on_block(&*device, targets, &mut random),
            12..14 => splice(&*device, targets, &mut random),
            _ => record(&*device, targets, &mut random),
        })
        .collect();
    done.join("; ")
}

fn pick<'t, T>(all: &'t [T], random: &mut Random) -> &'t T {
    &all[random.below(all.len() as u64) as usize]
}

/// Any structure, each kind as often as the others; seldom the MMP block, since who finds it in use
/// waits.
fn any<'t>(targets: &'t Targets, random: &mut Random) -> &'t Target {
    let target = pick(pick::<Vec<Target>>(&targets.kinds, random), random);
    match target.structure {
        Structure::Mmp if random.below(16) != 0 => any(targets, random),
        _ => target,
    }
}

/// One of a kind; `None` where the volume has none.
fn one_of<'t>(
    targets: &'t Targets,
    random: &mut Random,
    is_it: impl Fn(&Structure) -> bool,
) -> Option<&'t Target> {
    let kind = targets.kinds.iter().find(|kind| is_it(&kind[0].structure))?;
    Some(pick(kind, random))
}

fn read(device: &dyn Device, target: &Target) -> Vec<u8> {
    let mut bytes = vec![0; target.length];
    device.read_at(target.offset, &mut bytes).expect("reads");
    bytes
}

fn write(device: &dyn Device, targets: &Targets, target: &Target, bytes: &mut [u8]) {
    seal(bytes, target, &targets.geometry, device);
    device.write_at(target.offset, bytes).expect("writes");
}

fn block_of(target: &Target, geometry: &Geometry) -> u64 {
    target.offset >> geometry.block_bits()
}

/// A value at the edge of what a field may hold, or that belongs elsewhere.
fn value(targets: &Targets, target: &Target, before: u64, random: &mut Random) -> u64 {
    let geometry = &targets.geometry;
    let (inodes, blocks) = (u64::from(geometry.inodes_count), geometry.blocks_count);
    let per_group = u64::from(geometry.inodes_per_group);
    let first = u64::from(geometry.first_inode.0);
    match random.below(10) {
        0 => before.wrapping_add(1),
        1 => before.wrapping_sub(1),
        2..4 => before ^ 1 << random.below(32),
        4 => block_of(any(targets, random), geometry),
        5 => block_of(target, geometry),
        6 => {
            let near = [inodes, blocks, per_group, first, u64::from(geometry.blocks_per_group)];
            pick(&near, random).wrapping_add(random.below(3)).wrapping_sub(1)
        }
        7 => before.wrapping_mul(2),
        8 => random.below(16),
        _ => *pick(
            &[
                0x7fff,
                0x8000,
                0x8001,
                0xffff,
                0x7fff_ffff,
                0x8000_0000,
                0xffff_fffe,
                0xffff_ffff,
                65_000,
                0xf30a,
                geometry.blocks_count / 2,
                inodes / 2,
            ],
            random,
        ),
    }
}

fn fields_of(structure: &Structure, length: usize, random: &mut Random) -> Field {
    let table = match structure {
        Structure::Superblock => SUPERBLOCK,
        Structure::Desc(_) => DESC,
        Structure::Inode(_) => INODE,
        Structure::ExtentNode(_) => NODE,
        Structure::Index(..) => INDEX,
        Structure::Attributes(_) => ATTRIBUTES,
        Structure::Journal => JOURNAL,
        Structure::Mmp => MMP,
        Structure::Quota => QUOTA,
        Structure::BlockBitmap(_) | Structure::InodeBitmap(_) => {
            let ends = [0, length / 8, length / 4, length / 2, length - 4];
            return (*pick(&ends, random), 4);
        }
        Structure::Indirect | Structure::Leaf(_) | Structure::Orphans(..) => {
            return (random.below(length as u64 / 4) as usize * 4, 4);
        }
    };
    let fitting: Vec<Field> =
        table.iter().copied().filter(|(at, width)| at + width <= length).collect();
    *pick(&fitting, random)
}

/// One field with a value at an edge.
fn edge(device: &dyn Device, targets: &Targets, random: &mut Random) -> String {
    let target = any(targets, random);
    let mut bytes = read(device, target);
    let (at, width) = fields_of(&target.structure, bytes.len(), random);
    let is_big = matches!(target.structure, Structure::Journal);
    let field = &mut bytes[at..at + width];
    let number = |bytes: &[u8]| {
        bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if is_big {
        field.reverse();
    }
    let before = number(field);
    let after = value(targets, target, before, random);
    field.copy_from_slice(&after.to_le_bytes()[..width]);
    let after = number(field);
    if is_big {
        field.reverse();
    }
    write(device, targets, target, &mut bytes);
    format!("{} of {:#x}, {at:#x}: {before:#x} becomes {after:#x}", target.name(), target.offset)
}

/// The map of one inode in another, or one pointer of it.
fn map_of_another(device: &dyn Device, targets: &Targets, random: &mut Random) -> String {
    const MAP: std::ops::Range<usize> = 0x28..0x64;
    let is_inode = |it: &Structure| matches!(it, Structure::Inode(_));
    let (Some(from), Some(to)) =
        (one_of(targets, random, is_inode), one_of(targets, random, is_inode))
    else {
        return edge(device, targets, random);
    };
    let (mut source, mut bytes) = (read(device, from), read(device, to));
    let how = match random.below(5) {
        0 => {
            bytes[MAP].copy_from_slice(&source[MAP]);
            "has the map of"
        }
        1 => {
            // With its flags, size and space.
            bytes[MAP].copy_from_slice(&source[MAP]);
            for part in [0x04..0x08, 0x1c..0x24, 0x6c..0x70] {
                bytes[part.clone()].copy_from_slice(&source[part]);
            }
            "has map, flags and size of"
        }
        2 => {
            let word = MAP.start + random.below(15) as usize * 4;
            bytes[word..word + 4].copy_from_slice(&source[word..word + 4]);
            "has a word of the map of"
        }
        3 => {
            let kept = bytes.clone();
            bytes[MAP].copy_from_slice(&source[MAP]);
            source[MAP].copy_from_slice(&kept[MAP]);
            write(device, targets, from, &mut source);
            "changes maps with"
        }
        _ => {
            bytes[0x68..0x6c].copy_from_slice(&source[0x68..0x6c]);
            "has the attributes of"
        }
    };
    write(device, targets, to, &mut bytes);
    format!("{} {how} {}", to.name(), from.name())
}

/// A block of some structure overwrites one of another kind, unchanged; or any block at the start
/// of the volume.
fn block_on_block(device: &dyn Device, targets: &Targets, random: &mut Random) -> String {
    let geometry = &targets.geometry;
    let from = BlockNo(block_of(any(targets, random), geometry));
    let to = match random.below(3) {
        0 => BlockNo(random.below(geometry.blocks_count.min(3000))),
        _ => BlockNo(block_of(any(targets, random), geometry)),
    };
    let mut bytes = vec![0; geometry.block_len()];
    device.read_at(geometry.byte_of(from), &mut bytes).expect("reads");
    device.write_at(geometry.byte_of(to), &bytes).expect("writes");
    format!("block {from} lies on {to}")
}

/// Where the records of a leaf start.
fn records(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(field) = bytes.get(at + 4..at + 6) {
        let length = usize::from(u16::from_le_bytes([field[0], field[1]]));
        if length < 8 || at + length > bytes.len() {
            break;
        }
        starts.push(at);
        at += length;
    }
    starts
}

/// Records of one directory in the middle of another.
fn splice(device: &dyn Device, targets: &Targets, random: &mut Random) -> String {
    let is_leaf = |it: &Structure| matches!(it, Structure::Leaf(_));
    let (Some(from), Some(to)) =
        (one_of(targets, random, is_leaf), one_of(targets, random, is_leaf))
    else {
        return edge(device, targets, random);
    };
    let (source, mut bytes) = (read(device, from), read(device, to));
    let (there, here) = (records(&source), records(&bytes));
    if there.is_empty() || here.is_empty() {
        return edge(device, targets, random);
    }
    let (start, at) = (*pick(&there, random), *pick(&here, random));
    let most = (source.len() - start).min(bytes.len() - at);
    let length = match random.below(3) {
        0 => most,
        1 => 12 * (1 + random.below(4) as usize),
        _ => random.below(most as u64 + 1) as usize,
    }
    .min(most);
    bytes[at..at + length].copy_from_slice(&source[start..start + length]);
    write(device, targets, to, &mut bytes);
    format!(
        "{length} bytes of {:#x} from {start:#x} stand in {:#x} at {at:#x}",
        from.offset, to.offset
    )
}

/// One field of a directory's record.
fn record(device: &dyn Device, targets: &Targets, random: &mut Random) -> String {
    let is_leaf = |it: &Structure| matches!(it, Structure::Leaf(_));
    let Some(leaf) = one_of(targets, random, is_leaf) else {
        return edge(device, targets, random);
    };
    let mut bytes = read(device, leaf);
    let starts = records(&bytes);
    if starts.is_empty() {
        return edge(device, targets, random);
    }
    let at = match random.below(3) {
        0 => starts[random.below(2.min(starts.len() as u64)) as usize],
        _ => *pick(&starts, random),
    };
    let geometry = &targets.geometry;
    let said = match random.below(4) {
        0 => {
            let number = match random.below(4) {
                0 => random.below(16) as u32,
                1 => geometry.inodes_count.wrapping_add(random.below(3) as u32).wrapping_sub(1),
                _ => 1 + random.below(u64::from(geometry.inodes_count.min(400))) as u32,
            };
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            format!("names inode {number}")
        }
        1 => {
            let left = bytes.len() - at;
            let lengths = [0, 4, 8, 12, 16, 20, 24, left, left - 4, left - 12, left + 4, 0xffff];
            let length = *pick(&lengths, random) as u16;
            bytes[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
            format!("is {length} long")
        }
        2 => {
            let length = *pick(&[0, 1, 2, 4, 200, 255], random);
            bytes[at + 6] = length;
            format!("has a name of {length} bytes")
        }
        _ => {
            let letter = *pick(b"./\0\xff", random);
            let place = at + *pick(&[7, 8, 9], random);
            bytes[place] = letter;
            format!("has {letter:#x} at {place:#x}")
        }
    };
    write(device, targets, leaf, &mut bytes);
    format!("the record at {at:#x} of {:#x} {said}", leaf.offset)
}
