//! Random damage: no panic, and after the repair nobody finds anything.

mod common;

use common::{findings, open};
use extant_check::{Answers, Store};
use extant_device::Device;
use extant_ondisk::superblock::SUPERBLOCK_OFFSET;
use extant_testkit::{Scratch, TempImage, e2fsck_fn, skip, tool, tree::Random};

/// What is damaged: everything behind the superblock and the descriptors, which others judge before the passes.
fn damage(image: &std::path::Path, seed: u64) {
    let device = open(image, true);
    let mut random = Random::new(seed);
    let store = Store::open(device.clone()).expect("a healthy volume opens");
    let block = u64::from(store.geometry().block_size);
    let first =
        store.geometry().superblock_block().0 + 1 + u64::from(store.geometry().desc_blocks());
    let count = store.geometry().blocks_count;
    // Most of the volume is empty: what is in use lies at its front.
    let mut place = || first + random.below((count - first).min(700));
    let places: Vec<u64> = (0..6).map(|_| place()).collect();
    let mut random = Random::new(seed ^ 0x5555);
    for pair in places.chunks_exact(2) {
        let (a, b) = (pair[0] * block, pair[1] * block);
        let mut bytes = vec![0; block as usize];
        device.read_at(a, &mut bytes).expect("reads");
        match random.below(4) {
            0 => bytes.fill(0),
            1 => {
                let mut other = vec![0; block as usize];
                device.read_at(b, &mut other).expect("reads");
                device.write_at(b, &bytes).expect("writes");
                bytes = other;
            }
            _ => {
                for _ in 0..1 + random.below(8) {
                    let bit = random.below(block * 8);
                    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
            }
        }
        device.write_at(a, &bytes).expect("writes");
    }
    assert!(SUPERBLOCK_OFFSET < first * block);
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
    let source = source.to_str().expect("scratch paths are UTF-8");
    let sets: [&[&str]; 3] = [
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
    ];
    let rounds: u64 =
        std::env::var("EXTANT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let only: Option<u64> = std::env::var("EXTANT_SEED").ok().and_then(|text| text.parse().ok());
    let mut wrong = Vec::new();
    for (set, options) in sets.iter().enumerate() {
        let mut args = options.to_vec();
        args.extend(["-d", source]);
        let base = TempImage::by_mke2fs(16 << 20, &args).expect("mke2fs makes it");
        for round in 0..rounds {
            let seed = set as u64 * 1000 + round;
            if only.is_some_and(|only| only != seed) {
                continue;
            }
            let image = scratch.join("damaged.img");
            std::fs::copy(base.path(), &image).expect("copies");
            damage(&image, seed);
            let mut store = match Store::open(open(&image, true)) {
                Ok(store) => store,
                Err(_) => continue,
            };
            let report = extant_check::repair(&mut store, &common::options(), &Answers::Yes)
                .expect("the device does not fail");
            let after = extant_check::look(&store, &common::options()).expect("looks");
            drop(store);
            if after.errors_left {
                wrong.push(format!(
                    "seed {seed}: left\n{}done\n{}",
                    findings(&after),
                    findings(&report)
                ));
            } else if let Err(said) = e2fsck_fn(&image) {
                wrong.push(format!("seed {seed}: {said}\ndone\n{}", findings(&report)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}
