//! An archive as BackupPC's hierarchy gives (document 002), streamed as tar and never stored; where
//! the archive is to cost nothing, its entries are handed over as they are made.
//!
//! First the pool, in the order of hashes: `backuppc/cpool/f/1/d/f1d2…`. Then `backuppc/pc`: one
//! tree of directories after another, as desktops have them, in the order of their names, where
//! each file is a link to the pool, with empty files between. The target of a link has nothing to
//! do with its place: it is scattered over the whole pool, so that the order of links meets inodes
//! in no order at all. A few pool files have very many links, up to BackupPC's limit, most have
//! few.

use std::io::{self, Write};

use fastrand::Rng;
use tar::{Builder, EntryType, Header};

use crate::experiment::HardLinks;
use crate::experiment::Settings;

/// How skewed links are: the n-th most linked of P pool files has links in proportion to
/// (n/P)^(1/SKEW - 1).
const SKEW: f64 = 2.5;
/// Entries of a directory of a desktop, about.
const A_DIRECTORY: f64 = 12.0;
/// How deep desktops' trees go.
const DEEPEST: usize = 12;
/// Where the backups of machines begin.
pub const LINKS_BEGIN: &str = "backuppc/pc";
/// The pool.
pub const POOL: &str = "backuppc/cpool";

/// How large the archive is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ArchiveSize {
    /// Files of the pool.
    pub pool_files: u64,
    /// Bytes of all of them.
    pub pool_bytes: u64,
    /// Links to them.
    pub links: u64,
    /// Empty files between.
    pub empty_files: u64,
    /// Links that a pool file has at most.
    pub most_links: u16,
    /// Trees that the links are in.
    pub backups: u64,
}

impl ArchiveSize {
    /// An experiment's, scaled.
    pub fn new(work: &HardLinks, settings: &Settings) -> Self {
        let pool_files = settings.count(work.pool_files);
        let each = work.pool_bytes.0 / work.pool_files.max(1);
        Self {
            pool_files,
            pool_bytes: settings.size(each).saturating_mul(pool_files),
            links: settings.count(work.links),
            empty_files: settings.count(work.empty_files),
            most_links: work.most_links,
            backups: settings.count(work.backups),
        }
    }

    /// Writes the archive. The same seed gives the same bytes.
    ///
    /// # Errors
    /// `out` cannot be written, for example because its reader has exited.
    pub fn stream(&self, seed: u64, out: impl Write) -> io::Result<()> {
        let mut tar = Tar(Builder::new(out));
        self.hand_over(seed, &mut tar)?;
        tar.0.into_inner().map(drop)
    }

    /// Hands the entries over, in the archive's order. The same seed gives the same entries.
    ///
    /// # Errors
    /// The first error of `to`.
    pub fn hand_over<E: Entries>(&self, seed: u64, to: &mut E) -> Result<(), E::Error> {
        let mut random = Rng::with_seed(seed);
        to.dir("backuppc")?;
        self.pool(seed, &mut random, to)?;
        self.backups(seed, &mut random, to)
    }

    fn pool<E: Entries>(&self, seed: u64, random: &mut Rng, to: &mut E) -> Result<(), E::Error> {
        to.dir(POOL)?;
        let mut above = String::new();
        for number in 0..self.pool_files {
            let name = self.hash(seed, number);
            for depth in 1..=3 {
                let letters: Vec<&str> = (0..depth).map(|at| &name[at..=at]).collect();
                let dir = format!("{POOL}/{}", letters.join("/"));
                if !above.starts_with(&dir) {
                    to.dir(&dir)?;
                    above = dir;
                }
            }
            let size = self.pool_size(random);
            to.file(&pool_path(&name), size)?;
        }
        Ok(())
    }

    /// Sizes are exponential: most files are small, few are large.
    fn pool_size(&self, random: &mut Rng) -> u64 {
        let mean = self.pool_bytes as f64 / self.pool_files as f64;
        (-mean * (1.0 - random.f64()).ln()) as u64 + 1
    }

    /// The name of a pool file: they ascend with their numbers, as hashes in order do.
    fn hash(&self, seed: u64, number: u64) -> String {
        let mut random = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let width = ((1_u64 << 48) / self.pool_files).max(1);
        let first = number * width + random.u64(0..width);
        format!("{first:012x}{:016x}{:012x}", random.u64(..), random.u64(..) >> 16)
    }

    fn backups<E: Entries>(&self, seed: u64, random: &mut Rng, to: &mut E) -> Result<(), E::Error> {
        to.dir(LINKS_BEGIN)?;
        let mut targets = Targets::new(self);
        let files = self.links + self.empty_files;
        let mut empties = 0;
        let mut dirs: Vec<String> = Vec::new();
        let mut dir_number = 0_u64;
        for number in 0..files {
            // Evenly between: as many as there should be up to here.
            let is_empty =
                (number + 1) as u128 * self.empty_files as u128 / files as u128 > empties as u128;
            let backup = number * self.backups / files;
            if number == 0 || backup != (number - 1) * self.backups / files {
                let (host, count) = (backup % 4, backup / 4);
                let top = format!("{LINKS_BEGIN}/desktop{host}");
                if count == 0 {
                    to.dir(&top)?;
                }
                dirs = vec![format!("{top}/{count}")];
                to.dir(&dirs[0])?;
            }
            if random.f64() < 1.0 / A_DIRECTORY {
                let up = random.usize(0..=dirs.len().min(3));
                let keep = (dirs.len() - up).clamp(1, DEEPEST);
                dirs.truncate(keep);
                let parent = dirs.last().expect("the backup itself is always there");
                let dir = format!("{parent}/fdir{dir_number}");
                dir_number += 1;
                to.dir(&dir)?;
                dirs.push(dir);
            }
            let parent = dirs.last().expect("the backup itself is always there");
            let name = format!("{parent}/ffile{number}");
            if is_empty {
                empties += 1;
                to.file(&name, 0)?;
            } else {
                let target = targets.next(random);
                to.link(&name, &pool_path(&self.hash(seed, target)))?;
            }
        }
        Ok(())
    }
}

fn pool_path(name: &str) -> String {
    format!("{POOL}/{}/{}/{}/{name}", &name[..1], &name[1..2], &name[2..3])
}

/// Which pool files links go to.
struct Targets {
    used: Vec<u16>,
    most: u16,
    /// Odd and coprime to the pool size: ranks are scattered by it.
    stride: u64,
}

impl Targets {
    fn new(size: &ArchiveSize) -> Self {
        let pool = size.pool_files;
        let mut stride = (pool as f64 * 0.618) as u64 | 1;
        while common_divisor(stride, pool) != 1 {
            stride += 2;
        }
        Self { used: vec![0; pool as usize], most: size.most_links - 1, stride }
    }

    /// If all are at the limit, the first gets one more link, so that the extracting program meets
    /// the limit.
    fn next(&mut self, random: &mut Rng) -> u64 {
        let pool = self.used.len() as u64;
        let rank = (pool as f64 * random.f64().powf(SKEW)) as u64;
        for further in 0..pool {
            let target = (rank + further) % pool * self.stride % pool;
            let used = &mut self.used[target as usize];
            if *used < self.most {
                *used += 1;
                return target;
            }
        }
        0
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Receiver of an archive's entries. A directory comes before its contents, a file before the links
/// to it.
pub trait Entries {
    /// Why it takes no more.
    type Error;
    /// A directory.
    fn dir(&mut self, path: &str) -> Result<(), Self::Error>;
    /// A file of `size` zero bytes.
    fn file(&mut self, path: &str, size: u64) -> Result<(), Self::Error>;
    /// One more name of a file.
    fn link(&mut self, path: &str, target: &str) -> Result<(), Self::Error>;
}

/// The archive as tar.
struct Tar<W: Write>(Builder<W>);

impl<W: Write> Entries for Tar<W> {
    type Error = io::Error;

    fn dir(&mut self, path: &str) -> io::Result<()> {
        let mut header = header(EntryType::Directory, 0);
        self.0.append_data(&mut header, path, io::empty())
    }

    fn file(&mut self, path: &str, size: u64) -> io::Result<()> {
        let mut header = header(EntryType::Regular, size);
        self.0.append_data(&mut header, path, io::Read::take(io::repeat(0), size))
    }

    fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let mut header = header(EntryType::Link, 0);
        self.0.append_link(&mut header, path, target)
    }
}

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
    header.set_mtime(1_273_000_000);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::Experiment;

    const SMALL: ArchiveSize = ArchiveSize {
        pool_files: 457,
        pool_bytes: 457 * 100,
        links: 10_400,
        empty_files: 84,
        most_links: 320,
        backups: 8,
    };

    fn written(seed: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        SMALL.stream(seed, &mut bytes).expect("memory");
        bytes
    }

    #[test]
    fn the_archive_holds_what_it_should() {
        let bytes = written(7);
        let mut archive = tar::Archive::new(&bytes[..]);
        let (mut pool, mut empty) = (Vec::new(), 0);
        let mut links: BTreeMap<String, u32> = BTreeMap::new();
        let mut in_directory: BTreeMap<(Option<String>, String), u32> = BTreeMap::new();
        let mut dirs = std::collections::BTreeSet::new();
        for entry in archive.entries().expect("tar") {
            let entry = entry.expect("an entry");
            let path = entry.path().expect("a path").to_string_lossy().into_owned();
            let parent = path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
            assert!(parent.as_ref().is_none_or(|parent| dirs.contains(parent)), "{path}");
            match entry.header().entry_type() {
                EntryType::Directory => assert!(dirs.insert(path.clone()), "{path} twice"),
                EntryType::Regular if path.starts_with(POOL) => {
                    assert!(links.is_empty(), "the pool comes first");
                    pool.push(path);
                }
                EntryType::Regular => {
                    assert_eq!(entry.size(), 0);
                    empty += 1;
                }
                _ => {
                    let target = entry.link_name().expect("a name").expect("a target");
                    let target = target.to_string_lossy().into_owned();
                    *in_directory.entry((parent, target.clone())).or_default() += 1;
                    *links.entry(target).or_default() += 1;
                }
            }
        }
        assert_eq!((pool.len(), empty), (457, 84));
        assert!(pool.is_sorted(), "the pool is in the order of its hashes");
        assert_eq!(links.values().sum::<u32>(), 10_400);
        assert!(links.keys().all(|target| pool.binary_search(target).is_ok()));
        assert_eq!(
            links.values().max(),
            Some(&319),
            "up to the limit, the pool's own name counted"
        );
        assert!(in_directory.values().any(|count| *count > 1), "several in one directory");
        let few = links.values().filter(|count| **count < 23).count();
        assert!(few > 300, "most have less than the mean: {few}");
    }

    /// Takes the links' targets, as numbers of the pool's files, in the archive's order.
    #[derive(Default)]
    struct Order {
        pool: BTreeMap<String, u64>,
        targets: Vec<u64>,
        /// Tops of the backups, and the positions of the empty files among the links.
        backups: Vec<String>,
        empties: Vec<usize>,
    }

    impl Entries for Order {
        type Error = std::convert::Infallible;

        fn dir(&mut self, path: &str) -> Result<(), Self::Error> {
            let below = path.strip_prefix("backuppc/pc/desktop").unwrap_or_default();
            if below.split('/').count() == 2 {
                self.backups.push(path.to_owned());
            }
            Ok(())
        }

        fn file(&mut self, path: &str, size: u64) -> Result<(), Self::Error> {
            if path.starts_with(POOL) {
                self.pool.insert(path.to_owned(), self.pool.len() as u64);
            } else {
                assert_eq!(size, 0, "{path}");
                self.empties.push(self.targets.len());
            }
            Ok(())
        }

        fn link(&mut self, path: &str, target: &str) -> Result<(), Self::Error> {
            let top = self.backups.last().expect("a link is in a backup");
            assert!(path.starts_with(&format!("{top}/")), "one tree after another: {path}");
            self.targets.push(self.pool[target]);
            Ok(())
        }
    }

    /// The order of the document's archive: the order of links is unrelated to that of inodes.
    #[test]
    fn targets_are_scattered_uniformly_over_the_pool() {
        let size = ArchiveSize { pool_files: 4560, links: 104_000, empty_files: 843, ..SMALL };
        let size = ArchiveSize { most_links: 31_999, backups: 12, ..size };
        let mut order = Order::default();
        size.hand_over(5, &mut order).expect("nothing is refused");
        let targets = order.targets;
        assert_eq!((targets.len(), order.pool.len(), order.backups.len()), (104_000, 4560, 12));
        // As many links go to each tenth of the pool; the most linked file alone has 3%.
        let mut tenths = [0_u32; 10];
        targets.iter().for_each(|target| tenths[(target * 10 / 4560) as usize] += 1);
        assert!(tenths.iter().all(|links| (7_300..14_500).contains(links)), "{tenths:?}");
        // From one link to the next it is a third of the pool, as between any two places.
        let steps: u64 = targets.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
        let step = steps as f64 / (targets.len() - 1) as f64 / 4560.0;
        assert!((0.31..0.36).contains(&step), "{step}");
        // The position of a link is unrelated to its target.
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
        let places: Vec<f64> = (0..targets.len()).map(|place| place as f64).collect();
        let values: Vec<f64> = targets.iter().map(|target| *target as f64).collect();
        let (place, value) = (mean(&places), mean(&values));
        let product = |a: &[f64], b: &[f64], (x, y): (f64, f64)| {
            a.iter().zip(b).map(|(a, b)| (a - x) * (b - y)).sum::<f64>()
        };
        let both = product(&places, &values, (place, value));
        let each =
            product(&places, &places, (place, place)) * product(&values, &values, (value, value));
        assert!((both / each.sqrt()).abs() < 0.02, "{}", both / each.sqrt());
        // Empty files are spread among the links.
        let gaps = order.empties.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| (120..130).contains(&gap)), "{:?}", gaps.max());
    }

    /// At the document's own size some files have as many links as BackupPC allows, and no file has
    /// more.
    #[test]
    fn links_reach_the_limit_of_backuppc() {
        let work = Experiment::built_in().into_iter().find_map(|one| one.hard_links);
        let size = ArchiveSize::new(&work.expect("an experiment"), &Settings::default());
        assert_eq!((size.pool_files, size.links, size.empty_files), (456_000, 10_400_000, 84_300));
        let mut targets = Targets::new(&size);
        let mut random = Rng::with_seed(1);
        for _ in 0..size.links {
            targets.next(&mut random);
        }
        let sum: u64 = targets.used.iter().map(|used| u64::from(*used)).sum();
        assert_eq!((sum, targets.used.iter().max()), (10_400_000, Some(&31_998)));
        let few = targets.used.iter().filter(|used| **used < 23).count();
        assert!(few > 300_000, "most have less than the mean: {few}");
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        assert_eq!(written(3), written(3));
        assert_ne!(written(3), written(4));
    }
}
