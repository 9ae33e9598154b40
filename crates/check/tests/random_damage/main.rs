//! Random damage at volume: no panic; a scan writes nothing and depends neither on threads nor on
//! memory, which stays within its limit; and after the repair neither e2fsck nor we find anything.
//!
//! A few rounds by default; `EXTANT_SLOW=1` runs many, `EXTANT_ROUNDS=N` as many as one likes from
//! `EXTANT_FIRST=N` on, `EXTANT_SEED=N` one, `EXTANT_SET=N` those of one set of options;
//! `EXTANT_KEEP=DIR` keeps the damaged images that went wrong.

mod aim;
#[path = "../common/mod.rs"]
mod common;
mod cross;
mod rich;

use common::{Walker, findings, fsck, open};
use extant_check::{AutoPolicy, CheckOptions, Code, PassReport, Store, Subject};
use extant_device::Device;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::Inode;
use extant_testkit::{Scratch, TempImage, e2fsck_fn, is_root, skip, tool, tree::Random};
use std::collections::BTreeSet;
use std::path::Path;

const FEW: u64 = 3;
const MANY: u64 = 100;
/// One repair in this number may be incomplete, if at least [`CHECKED_FROM`] are tried; none of
/// fewer.
const INCOMPLETE_IN: usize = 200;
const CHECKED_FROM: usize = 1000;
/// Seeds of one set of options.
const A_SET: u64 = 100_000;
/// Memory of the tables.
const MEMORY: u64 = 16 << 20;
/// Memory of a repair in addition to the tables of the volume.
const REPAIR: u64 = 32 << 10;

/// Where the damage falls.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// After the superblock and the descriptors.
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
    // Most of the volume is empty: the used part is at its start.
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

/// The options of the healthy volumes, and whether their directories are packed and indexed.
const SETS: &[(&[&str], bool)] = &[
    (&["-t", "ext4", "-b", "1024", "-O", "^has_journal,^resize_inode", "-N", "1024"], false),
    (
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
        true,
    ),
    (&["-t", "ext2", "-b", "1024", "-O", "^resize_inode", "-N", "1024"], false),
    (&["-t", "ext4", "-b", "1024", "-N", "1024"], true),
    (&["-t", "ext4", "-b", "1024", "-O", "inline_data,ea_inode,quota,orphan_file"], true),
    (&["-t", "ext4", "-b", "1024", "-O", "bigalloc,^resize_inode", "-C", "4096"], false),
    (&["-t", "ext3", "-b", "4096"], true),
    (
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-N", "1024", "-O", "meta_bg,^resize_inode"],
        true,
    ),
    (
        &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "quota,project,mmp,metadata_csum_seed"],
        true,
    ),
    (&["-t", "ext2", "-b", "1024", "-r", "0"], false),
    (&["-t", "ext4", "-b", "4096", "-O", "^64bit,^metadata_csum,uninit_bg,casefold"], true),
    (&["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode,large_dir,ea_inode"], true),
    (&["-t", "ext3", "-b", "1024", "-I", "128", "-N", "1024"], true),
    (&["-t", "ext4", "-b", "2048", "-O", "^flex_bg,orphan_file,encrypt,verity"], true),
];

/// All sets: those that mke2fs fills, then those that the kernel fills.
fn sets() -> usize {
    if is_root() { SETS.len() + rich::SETS.len() } else { SETS.len() }
}

/// A healthy volume.
fn base(set: usize, source: &Path) -> TempImage {
    let (image, is_indexed) = match SETS.get(set) {
        Some((options, is_indexed)) => {
            let mut args = options.to_vec();
            args.extend(["-d", source.to_str().expect("scratch paths are UTF-8")]);
            (TempImage::by_mke2fs(16 << 20, &args).expect("mke2fs makes it"), *is_indexed)
        }
        None => (rich::base(rich::SETS[set - SETS.len()]).expect("the kernel fills it"), false),
    };
    let words: &[&str] = if is_indexed { &["-fyD"] } else { &["-fy"] };
    let e2fsck =
        tool("e2fsck").expect("asked for before").command().args(words).arg(image.path()).output();
    let said = e2fsck.expect("it starts");
    assert!(said.status.code() < Some(4), "{said:?}");
    let sound = fsck(&image.path(), &with_threads(2), AutoPolicy::No).expect("it is sound");
    if let (false, Some(dir)) = (sound.findings.is_empty(), std::env::var_os("EXTANT_KEEP")) {
        std::fs::copy(image.path(), Path::new(&dir).join("sound.img")).expect("there is room");
    }
    assert!(sound.findings.is_empty(), "set {set}: {}", findings(&sound));
    image
}

fn with_threads(threads: usize) -> CheckOptions {
    CheckOptions { threads, memory: Some(MEMORY), ..CheckOptions::default() }
}

/// The files of a volume that have content: path, type, size and hash.
fn files(image: &Path) -> BTreeSet<String> {
    let Ok(store) = Store::open(open(image, false)) else { return BTreeSet::new() };
    Walker::tree(&store)
        .lines()
        .filter(|line| line.contains("\tf\t") && !line.contains("\tf\t0\t"))
        .map(str::to_owned)
        .collect()
}

/// Size and hash.
fn content(line: &str) -> &str {
    line.split_once('\t').map_or(line, |(_, rest)| rest)
}

/// The result of e2fsck on the image: the files that it keeps; none if it does not make it sound.
fn kept_by_e2fsck(image: &Path, copy: &Path) -> Option<BTreeSet<String>> {
    std::fs::copy(image, copy).expect("copies");
    let e2fsck = tool("e2fsck").expect("asked for before");
    let done = e2fsck.command().arg("-fy").arg(copy).output().expect("it starts");
    if done.status.code().is_none_or(|code| code > 1) {
        return None;
    }
    e2fsck_fn(copy).ok()?;
    Some(files(copy))
}

/// Whether all that e2fsck 1.47.0 finds are inline files whose contents begin as an extent map
/// does: it takes them for maps
/// (`healthy::an_inline_file_that_begins_as_an_extent_map_has_no_findings`).
fn is_false_positive(image: &Path, said: &str) -> bool {
    let Ok(store) = Store::open(open(image, false)) else { return false };
    let is_inline = |number: &str| {
        let number = number.parse().ok().map(InodeNo)?;
        let record = store.read_inode(number).ok()??;
        Some(Inode::decode(&record, number, store.geometry()).ok()?.is_inline())
    };
    let mut found = said.lines().filter(|line| line.starts_with("Inode ")).peekable();
    found.peek().is_some()
        && said.matches("? no").count() == found.clone().count()
        && found.all(|line| {
            let number = line
                .strip_prefix("Inode ")
                .and_then(|rest| rest.strip_suffix(" missing EXTENT_FL, but is in extents format"));
            number.and_then(is_inline) == Some(true)
        })
}

/// The findings of a scan, without times of day.
fn findings_of(report: &PassReport) -> Vec<(Code, Subject)> {
    let mut found: Vec<_> =
        report.findings.iter().map(|it| (it.finding.code, it.finding.subject.clone())).collect();
    for (_, subject) in found.iter_mut().filter(|(code, _)| *code == Code::TimeInFuture) {
        subject.expected = None;
    }
    found
}

/// The result of a scan with little memory, compared with `whole`, the scan with enough memory: the
/// same in more than one window; or an error that the memory is too small. Then the least memory
/// with which a scan worked.
fn check_small_memory(
    image: &Path,
    whole: &PassReport,
    threads: usize,
) -> (Option<String>, Option<u64>) {
    let mut least = None;
    for eighths in [6, 5, 4] {
        let memory = whole.memory * eighths / 8;
        let options = CheckOptions { memory: Some(memory), ..with_threads(threads) };
        match fsck(image, &options, AutoPolicy::No) {
            Ok(small) if findings_of(&small) != findings_of(whole) => {
                let (whole, small) = (findings(whole), findings(&small));
                return (Some(format!("whole finds\n{whole}within {memory}\n{small}")), None);
            }
            Ok(small) if small.memory > memory || small.windows < 2 => {
                let PassReport { memory: took, windows, .. } = small;
                return (Some(format!("{windows} windows took {took} of {memory} bytes")), None);
            }
            Ok(_) => least = Some(memory),
            Err(said) if said.contains("out of memory") => break,
            Err(said) => return (Some(format!("within {memory} bytes it ended: {said}")), None),
        }
    }
    (None, least)
}

/// The failures of a round.
#[derive(Debug)]
enum Flaw {
    /// Failures that no damage excuses: a panic, a scan that writes or that depends on threads or
    /// memory.
    Broken(String),
    /// A repair that did not do all: seldom enough, it is allowed.
    Incomplete(String),
}

/// One round: what is wrong with how it went. `healthy` are the files before the damage.
fn check_image(image: &Path, seed: u64, healthy: &BTreeSet<String>) -> Option<Flaw> {
    match compare_scans(image, seed) {
        Err(flaw) => Some(Flaw::Broken(flaw)),
        Ok(scans) => check_repair(image, &scans, healthy).map(Flaw::Incomplete),
    }
}

/// The results of the scans of a round.
struct Scans {
    /// Whether the volume could be scanned.
    went: bool,
    threads: usize,
    /// Bytes that the repair may take.
    memory: u64,
}

/// Scans the image with one thread and with several, and with less memory; returns the failures.
fn compare_scans(image: &Path, seed: u64) -> Result<Scans, String> {
    let before = std::fs::read(image).expect("it is there");
    let first = fsck(image, &with_threads(1), AutoPolicy::No);
    let threads = 2 + (seed % 7) as usize;
    let second = fsck(image, &with_threads(threads), AutoPolicy::No);
    if std::fs::read(image).expect("it is there") != before {
        return Err("a look wrote".to_owned());
    }
    match (&first, &second) {
        (Ok(one), Ok(other)) if findings_of(one) != findings_of(other) => {
            return Err(format!(
                "1 thread finds\n{}{threads} threads find\n{}",
                findings(one),
                findings(other)
            ));
        }
        (Ok(one), Ok(_)) if one.memory > MEMORY => {
            return Err(format!("the tables took {} bytes", one.memory));
        }
        _ => {}
    }
    let mut memory = MEMORY;
    if let Ok(one) = &first {
        let (flaw, least) = check_small_memory(image, one, threads);
        if let Some(flaw) = flaw {
            return Err(flaw);
        }
        // Every third repair has the memory that suffices for a scan.
        memory = least.filter(|_| seed.is_multiple_of(3)).unwrap_or(MEMORY);
    }
    Ok(Scans { went: first.is_ok(), threads, memory })
}

/// Repairs the image; returns the flaw of the result.
fn check_repair(image: &Path, scans: &Scans, healthy: &BTreeSet<String>) -> Option<String> {
    let copy = image.with_extension("e2fsck");
    let &Scans { went, threads, memory } = scans;
    let kept = kept_by_e2fsck(image, &copy);
    let within = |memory| CheckOptions { memory: Some(memory), ..with_threads(threads) };
    // Additions of a repair may need more than the existing memory.
    let repaired = match fsck(image, &within(memory + REPAIR), AutoPolicy::Yes) {
        Ok(repaired) => repaired,
        // No superblock anywhere, or an image that ends too early: said, and left.
        Err(_) if !went && kept.is_none() => return None,
        // A volume that is longer than its device is scanned, but not repaired, by e2fsck either.
        Err(error) if error.contains("but the device only") && kept.is_none() => return None,
        Err(error) => {
            return Some(format!("a repair ended: {error}; e2fsck goes on: {}", kept.is_some()));
        }
    };
    if repaired.errors_left {
        return Some(format!("left, done\n{}", findings(&repaired)));
    }
    if let Err(said) = e2fsck_fn(image)
        && !is_false_positive(image, &said)
    {
        return Some(format!("{said}\ndone\n{}", findings(&repaired)));
    }
    match fsck(image, &with_threads(threads), AutoPolicy::No) {
        Ok(again) if again.findings.is_empty() => {}
        Ok(again) => {
            return Some(format!("found again\n{}done\n{}", findings(&again), findings(&repaired)));
        }
        Err(error) => {
            return Some(format!("a second run ended: {error}\ndone\n{}", findings(&repaired)));
        }
    }
    // No file that e2fsck keeps as it was is lost.
    let ours = files(image);
    let contents: BTreeSet<&str> = ours.iter().map(|line| content(line)).collect();
    let kept = kept.unwrap_or_default();
    let lost: Vec<&String> = healthy
        .iter()
        .filter(|line| kept.contains(*line) && !ours.contains(*line))
        .map(|line| (line, contents.contains(content(line))))
        .filter(|(_, is_elsewhere)| !is_elsewhere || ours.len() < kept.len())
        .map(|(line, _)| line)
        .collect();
    (!lost.is_empty()).then(|| {
        format!(
            "e2fsck keeps {} of {}, here {}: {}\ndone\n{}",
            kept.len(),
            healthy.len(),
            ours.len(),
            lost[0],
            findings(&repaired)
        )
    })
}

/// Runs rounds of some damage on each of the volumes.
fn rounds(damage: impl Fn(&Path, &aim::Targets, u64) -> String) {
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
        // Each its own content: a file that got that of another is not the same.
        let file = many.join(format!("{number} and a long name after it"));
        std::fs::write(file, number.to_string()).expect("a file");
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let usual = if std::env::var_os("EXTANT_SLOW").is_some() { MANY } else { FEW };
    let (count, only) = (number("EXTANT_ROUNDS").unwrap_or(usual), number("EXTANT_SEED"));
    let (first, only_set) = (number("EXTANT_FIRST").unwrap_or(0), number("EXTANT_SET"));
    let (mut broken, mut incomplete, mut tried) = (Vec::new(), Vec::new(), 0);
    for set in 0..sets() {
        let seeds = (first..first + count).map(|round| set as u64 * A_SET + round);
        let seeds: Vec<u64> = match only {
            Some(only) if only / A_SET == set as u64 => vec![only],
            Some(_) => continue,
            None if only_set.is_some_and(|only| only != set as u64) => continue,
            None => seeds.collect(),
        };
        let base = base(set, &source);
        let targets = aim::Targets::of(&base.path());
        let healthy = files(&base.path());
        for seed in seeds {
            let image = scratch.join("damaged.img");
            std::fs::copy(base.path(), &image).expect("copies");
            let done = damage(&image, &targets, seed);
            let spoiled = std::fs::read(&image).expect("it is there");
            let result = std::panic::catch_unwind(|| check_image(&image, seed, &healthy));
            tried += 1;
            let panicked = || Some(Flaw::Broken("it panicked".to_owned()));
            let (wrong, flaw) = match result.unwrap_or_else(|_| panicked()) {
                None => continue,
                Some(Flaw::Broken(flaw)) => (&mut broken, flaw),
                Some(Flaw::Incomplete(flaw)) => (&mut incomplete, flaw),
            };
            let line = format!("seed {seed}, {done}: {flaw}");
            if let Some(dir) = std::env::var_os("EXTANT_KEEP") {
                std::fs::write(Path::new(&dir).join(format!("{seed}.img")), spoiled)
                    .expect("there is room");
                eprintln!("==== {line}");
            }
            wrong.push(line);
        }
    }
    let allowed = if tried < CHECKED_FROM { 0 } else { tried / INCOMPLETE_IN };
    println!("{} of {tried} repairs are incomplete, {allowed} may be", incomplete.len());
    incomplete.iter().for_each(|line| println!("{}", line.lines().next().unwrap_or_default()));
    let wrong = [broken.join("\n"), incomplete.join("\n")].join("\n");
    assert!(
        broken.is_empty() && incomplete.len() <= allowed,
        "{} broken, {} of {tried} incomplete, {allowed} may be\n{wrong}",
        broken.len(),
        incomplete.len()
    );
}

#[test]
fn random_damage_is_repaired() {
    rounds(|image, _, seed| {
        let place = if seed % 4 == 3 { Where::Anywhere } else { Where::Tables };
        damage(image, seed, place);
        format!("{place:?}")
    });
}

/// Whether more than a few rounds are wanted.
fn is_requested() -> bool {
    ["EXTANT_SLOW", "EXTANT_ROUNDS", "EXTANT_SEED"]
        .into_iter()
        .any(|name| std::env::var_os(name).is_some())
}

#[test]
fn damage_to_fields_is_repaired() {
    if !is_requested() {
        skip!("EXTANT_SLOW=1 tries it");
    }
    rounds(aim::damage);
}

#[test]
fn structures_in_the_place_of_others_are_repaired() {
    if !is_requested() {
        skip!("EXTANT_SLOW=1 tries them");
    }
    rounds(aim::displace);
}

#[test]
fn damage_in_valid_form_is_repaired() {
    if !is_requested() {
        skip!("EXTANT_SLOW=1 tries it");
    }
    rounds(cross::damage);
}
