//! `cargo xtask corpora`: a corpus of our own, for clones that have no other.
//!
//! Images made by our own program and, where it is installed, by mke2fs; of each some copies that
//! are damaged by a seed. The same seed and the same makers give the same corpus.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use extant_testkit::tree::{self, Random};
use extant_testkit::{Scratch, own_corpus_dir, tool};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{Failure, machine};

/// Make the project's own corpus of whole and damaged images again
#[derive(clap::Args)]
pub(crate) struct Corpora {
    /// Where it goes, instead of where the tests look
    #[arg(long)]
    out: Option<PathBuf>,
    /// Seed of the trees and the damage
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Damaged copies of each image
    #[arg(long, default_value_t = 4)]
    copies: u64,
}

/// Options of mke2fs, which our program understands too, with a name for the image.
const SETS: [(&str, &[&str]); 9] = [
    ("ext2", &["-t", "ext2", "-b", "1024", "-I", "128"]),
    ("ext3", &["-t", "ext3", "-b", "1024", "-J", "size=1"]),
    ("ext4", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^orphan_file"]),
    ("4k", &["-t", "ext4", "-b", "4096", "-O", "^has_journal,metadata_csum_seed"]),
    (
        "plain",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^has_journal", "-g", "1024"],
    ),
    (
        "inline",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,inline_data,ea_inode,^has_journal"],
    ),
    (
        "bigalloc",
        &["-t", "ext4", "-b", "1024", "-C", "16384", "-O", "bigalloc,^metadata_csum,^has_journal"],
    ),
    ("casefold", &["-t", "ext4", "-b", "1024", "-O", "casefold,large_dir,^has_journal"]),
    (
        "quota",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "quota,project,^metadata_csum,^has_journal,sparse_super2",
        ],
    ),
];
/// Bytes of an image.
const SIZE: u64 = 12 << 20;
/// Settings that depend on no clock and on no chance.
const FIXED: [&str; 8] =
    ["-q", "-F", "-N", "800", "-U", "a3c5e7f1-0b2d-4f68-8a9c-1e3d5b7f9a0c", "-E", HASH_SEED];
const HASH_SEED: &str = "hash_seed=0c9a8f7e-6d5b-4c3a-9f8e-7d6c5b4a3f2e,lazy_itable_init=1";

impl Corpora {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let out = self.out.unwrap_or_else(own_corpus_dir);
        make(&out, self.seed, self.copies)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes the corpus where the tests look for it, unless it is there.
pub(crate) fn make_where_missing() -> Result<(), Failure> {
    if extant_testkit::corpora().is_none() { make_own_where_missing() } else { Ok(()) }
}

/// Makes our own corpus unless it is there, even where the tests have another.
pub(crate) fn make_own_where_missing() -> Result<(), Failure> {
    if !own_corpus_dir().is_dir() {
        make(&own_corpus_dir(), 1, 4)?;
    }
    Ok(())
}

fn make(out: &Path, seed: u64, copies: u64) -> Result<(), Failure> {
    // As the tests build it.
    let built = machine::cargo()
        .args(["build", "--profile", "test", "--package", "extant-cli"])
        .status()?;
    if !built.success() {
        return Err("the program does not build".into());
    }
    let extant = machine::target_dir().join("debug/extant");
    let mut makers: Vec<(&str, PathBuf, &[&str])> = vec![("extant", extant, &["mkfs"])];
    if let Some(mke2fs) = tool("mke2fs") {
        makers.push(("mke2fs", mke2fs.path().to_owned(), &[]));
    } else {
        println!("no mke2fs here: images of our own program alone");
    }
    // Written aside and renamed: what is there stays until the new one is whole.
    let parent = out.parent().ok_or("the corpus needs a directory to lie in")?;
    fs::create_dir_all(parent)?;
    let fresh = tempfile::Builder::new().prefix(".corpus-").tempdir_in(parent)?;
    let source = Scratch::new();
    let options = tree::Options {
        many: 120,
        largest: 12_000,
        depth: 5,
        block: 1024,
        privileged: false,
        ..tree::Options::default()
    };
    tree::grow(&source.join("source"), seed, &options)?;
    let mut table = format!("image\tmaker\toptions\tdamage by seed\n# seed {seed}\n");
    let mut count = 0;
    for (set, (name, options)) in SETS.iter().enumerate() {
        for (maker, program, first) in &makers {
            // mke2fs does not count what -d brings into its quota files.
            if options.iter().any(|word| word.contains("quota")) && *maker != "extant" {
                continue;
            }
            let image = source.join("disk.img");
            File::create(&image)?.set_len(SIZE)?;
            let status = Command::new(program)
                .args(*first)
                .args(FIXED)
                .args(*options)
                .arg("-d")
                .arg(source.join("source"))
                .arg(&image)
                .env("SOURCE_DATE_EPOCH", "1700000000")
                .env("MKE2FS_CONFIG", "/nonexistent/mke2fs.conf")
                .stdin(Stdio::null())
                .status()?;
            if !status.success() {
                return Err(format!("{maker} did not make {name}").into());
            }
            let whole = fs::read(&image)?;
            for copy in 0..=copies {
                let damage = (copy > 0).then_some(seed ^ (set as u64) << 32 ^ copy << 16);
                let bytes = match damage {
                    Some(damage) => damaged(&whole, damage),
                    None => whole.clone(),
                };
                let file = format!("{name}-{maker}-{copy}.img.gz");
                pack(&fresh.path().join(&file), &bytes)?;
                let damage = damage.map_or("-".to_owned(), |damage| damage.to_string());
                table += &format!("{file}\t{maker}\t{}\t{damage}\n", options.join(" "));
                count += 1;
            }
        }
    }
    fs::write(fresh.path().join("made.tsv"), table)?;
    if out.exists() {
        if !out.join("made.tsv").is_file() {
            return Err(format!("{} is there and no corpus of ours", out.display()).into());
        }
        fs::remove_dir_all(out)?;
    }
    fs::rename(fresh.keep(), out)?;
    println!("{count} images in {}", out.display());
    Ok(())
}

/// A copy with a few changes where there is something, most of them near the front, where the
/// metadata lie; one in eight ends too early.
fn damaged(whole: &[u8], seed: u64) -> Vec<u8> {
    const PLACE: usize = 16;
    let mut random = Random::new(seed);
    let mut bytes = whole.to_vec();
    let used: Vec<usize> = (0..bytes.len() / PLACE)
        .filter(|place| bytes[place * PLACE..][..PLACE].iter().any(|byte| *byte != 0))
        .collect();
    let place = |random: &mut Random| {
        let limit = if random.below(4) > 0 { used.len() / 4 } else { used.len() };
        used[random.below(limit.max(1) as u64) as usize] * PLACE
            + random.below(PLACE as u64) as usize
    };
    for _ in 0..1 + random.below(6) {
        let at = place(&mut random);
        match random.below(5) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.below(256) as u8,
            3 => {
                let block = at / 1024 * 1024;
                let end = bytes.len().min(block + 1024);
                bytes[block..end].fill(0);
            }
            _ => {
                let (from, to) = (at / 1024 * 1024, place(&mut random) / 1024 * 1024);
                let len = 1024.min(bytes.len() - from.max(to));
                bytes.copy_within(from..from + len, to);
            }
        }
    }
    if random.below(8) == 0 {
        bytes.truncate(random.below(whole.len() as u64) as usize);
    }
    bytes
}

fn pack(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut packed = GzEncoder::new(File::create(path)?, Compression::fast());
    packed.write_all(bytes)?;
    packed.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_follows_from_its_seed_and_changes_something() {
        let whole: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        for seed in 0..50 {
            let copy = damaged(&whole, seed);
            assert_eq!(copy, damaged(&whole, seed));
            assert_ne!(copy, whole, "seed {seed}");
        }
    }
}
