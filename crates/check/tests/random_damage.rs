//! Random damage at volume: no panic, a look writes nothing and does not depend on threads, memory stays within its limit, and
//! after the repair nobody finds anything.
//!
//! A few rounds by default; `EXTANT_SLOW=1` runs many, `EXTANT_ROUNDS=N` as many as one likes, `EXTANT_SEED=N` one.

mod common;

use common::{findings, fsck, open};
use extant_check::{Answers, Options, Store};
use extant_device::Device;
use extant_testkit::{Scratch, TempImage, e2fsck_fn, skip, tool, tree::Random};
use std::path::Path;

const FEW: u64 = 8;
const MANY: u64 = 400;
/// What the tables may take.
const MEMORY: u64 = 16 << 20;

/// Where the damage falls.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// Behind the superblock and the descriptors.
    Tables,
    /// Anywhere from the first byte on.
    Anywhere,
}

/// Flips bits, zeroes blocks, swaps blocks; seldom cuts the image short.
fn damage(image: &Path, seed: u64, place: Where) {
    let device = open(image, true);
    let mut random = Random::new(seed);
    let store = Store::open(device.clone()).expect("a healthy volume opens");
    let block = u64::from(store.geometry().block_size);
    let first = match place {
        Where::Tables => {
            store.geometry().superblock_block().0 + 1 + u64::from(store.geometry().desc_blocks())
        }
        Where::Anywhere => 0,
    };
    let count = store.geometry().blocks_count;
    drop(store);
    // Most of the volume is empty: what is in use lies at its front.
    let mut at = || (first + random.below((count - first).min(700))) * block;
    let places: Vec<u64> = (0..6).map(|_| at()).collect();
    let mut random = Random::new(seed ^ 0x5555);
    for pair in places.chunks_exact(2) {
        let mut bytes = vec![0; block as usize];
        device.read_at(pair[0], &mut bytes).expect("reads");
        match random.below(4) {
            0 => bytes.fill(0),
            1 => {
                let mut other = vec![0; block as usize];
                device.read_at(pair[1], &mut other).expect("reads");
                device.write_at(pair[1], &bytes).expect("writes");
                bytes = other;
            }
            _ => {
                for _ in 0..1 + random.below(8) {
                    let bit = random.below(block * 8);
                    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
            }
        }
        device.write_at(pair[0], &bytes).expect("writes");
    }
    drop(device);
    if matches!(place, Where::Anywhere) && random.below(16) == 0 {
        let file = std::fs::File::options().write(true).open(image).expect("it is there");
        file.set_len((count - 1 - random.below(count / 4)) * block).expect("it becomes shorter");
    }
}

/// The healthy volumes.
fn bases(source: &str) -> Vec<TempImage> {
    let sets: [&[&str]; 7] = [
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^resize_inode", "-N", "1024"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^has_journal,^metadata_csum,^resize_inode",
            "-N",
            "512",
        ],
        &["-t", "ext2", "-b", "1024", "-O", "^resize_inode", "-N", "1024"],
        &["-t", "ext4", "-b", "1024", "-N", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "inline_data,ea_inode,quota,orphan_file"],
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc,^resize_inode", "-C", "4096"],
        &["-t", "ext3", "-b", "4096"],
    ];
    let make = |options: &&[&str]| {
        let mut args = options.to_vec();
        args.extend(["-d", source]);
        TempImage::by_mke2fs(16 << 20, &args).expect("mke2fs makes it")
    };
    sets.iter().map(make).collect()
}

fn with_threads(threads: usize) -> Options {
    Options { threads, memory: Some(MEMORY), ..Options::default() }
}

/// One round: what is wrong with how it went.
fn judge(image: &Path, seed: u64) -> Option<String> {
    let before = std::fs::read(image).expect("it is there");
    let first = fsck(image, &with_threads(1), Answers::No);
    let threads = 2 + (seed % 7) as usize;
    let second = fsck(image, &with_threads(threads), Answers::No);
    if std::fs::read(image).expect("it is there") != before {
        return Some("a look wrote".to_owned());
    }
    match (&first, &second) {
        (Ok(one), Ok(other)) if one.outcomes != other.outcomes => {
            return Some(format!(
                "1 thread finds\n{}{threads} threads find\n{}",
                findings(one),
                findings(other)
            ));
        }
        (Ok(one), Ok(_)) if one.memory > MEMORY => {
            return Some(format!("the tables took {} bytes", one.memory));
        }
        _ => {}
    }
    let repaired = match fsck(image, &with_threads(threads), Answers::Yes) {
        Ok(repaired) => repaired,
        // No superblock anywhere, or an image that ends too early: said, and left.
        Err(_) if first.is_err() => return None,
        Err(error) => return Some(format!("a repair ended: {error}")),
    };
    if repaired.errors_left {
        return Some(format!("left, done\n{}", findings(&repaired)));
    }
    match e2fsck_fn(image) {
        Ok(()) => None,
        Err(said) => Some(format!("{said}\ndone\n{}", findings(&repaired))),
    }
}

#[test]
fn random_damage_is_repaired() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir(&source).expect("a directory");
    let small = extant_testkit::tree::Options {
        block: 1024,
        many: 100,
        largest: 200_000,
        ..Default::default()
    };
    extant_testkit::tree::grow(&source.join("tree"), 3, &small).expect("grows");
    let many = source.join("many");
    std::fs::create_dir(&many).expect("a directory");
    for number in 0..150 {
        std::fs::write(many.join(format!("{number} and a long name after it")), b"x")
            .expect("a file");
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let usual = if std::env::var_os("EXTANT_SLOW").is_some() { MANY } else { FEW };
    let (rounds, only) = (number("EXTANT_ROUNDS").unwrap_or(usual), number("EXTANT_SEED"));
    let mut wrong = Vec::new();
    let bases = bases(source.to_str().expect("scratch paths are UTF-8"));
    for (set, base) in bases.iter().enumerate() {
        for round in 0..rounds {
            let seed = set as u64 * 100_000 + round;
            if only.is_some_and(|only| only != seed) {
                continue;
            }
            let image = scratch.join("damaged.img");
            std::fs::copy(base.path(), &image).expect("copies");
            let place = if round % 4 == 3 { Where::Anywhere } else { Where::Tables };
            damage(&image, seed, place);
            if let Some(flaw) = judge(&image, seed) {
                wrong.push(format!("seed {seed}, {place:?}: {flaw}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}
