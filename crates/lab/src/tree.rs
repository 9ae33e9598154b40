//! A tree like a system's own, made by a seed: `copy-remove` copies it if the tree of this machine
//! is not comparable.
//!
//! The document copied `/usr /home /boot /lib /bin /etc /sbin /var` of its machine. A made tree has
//! the same tops; below them directories nested at random, with a dozen names in each, and among
//! the names symbolic links to others. Sizes are log-normal: half of the files are small, and a few
//! hold most of the bytes. All bytes are zero, as those of document 002's archive.

use std::f64::consts::TAU;
use std::path::PathBuf;

use fastrand::Rng;

use crate::experiment::{MadeTree, Settings};

/// The trees of the document, with the share of names that each has in a system of that time,
/// about.
const TOPS: [(&str, f64); 8] = [
    ("usr", 0.62),
    ("home", 0.17),
    ("boot", 0.001),
    ("lib", 0.03),
    ("bin", 0.001),
    ("etc", 0.02),
    ("sbin", 0.001),
    ("var", 0.157),
];
/// How far sizes spread: the mean is some eleven times the median.
const SPREAD: f64 = 2.2;
/// Names of a directory, about.
const A_DIRECTORY: f64 = 12.0;
/// How deep directories go below a top.
const DEEPEST: usize = 10;
/// One name in this number is a symbolic link.
const A_LINK: u64 = 16;

/// Something in a made tree; directories come before what is in them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Made {
    /// A directory.
    Dir(PathBuf),
    /// A file of this many bytes.
    File(PathBuf, u64),
    /// A symbolic link to a name in the same directory.
    Symlink(PathBuf, PathBuf),
}

/// Generates it. The same seed gives the same tree, and the sizes add up to the requested bytes,
/// except for a byte each.
pub fn made(work: &MadeTree, settings: &Settings) -> Vec<Made> {
    let mut random = Rng::with_seed(settings.seed);
    let count = settings.count(work.files);
    let wanted = work.bytes.0 as f64 * settings.sizes * settings.counts;
    let shares: Vec<f64> = (0..count).map(|_| log_normal(&mut random)).collect();
    let scale = wanted / shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mut tree = Vec::with_capacity(shares.len() * 9 / 8);
    let mut rest = shares.into_iter().map(|share| (share * scale) as u64);
    for (top, share) in TOPS {
        let is_last = top == TOPS[TOPS.len() - 1].0;
        let files = if is_last { count } else { (count as f64 * share).ceil() as u64 };
        fill(top, rest.by_ref().take(files as usize), &mut tree, &mut random);
    }
    tree
}

fn fill(top: &str, sizes: impl Iterator<Item = u64>, tree: &mut Vec<Made>, random: &mut Rng) {
    let mut dirs = vec![PathBuf::from(top)];
    tree.push(Made::Dir(dirs[0].clone()));
    for (number, size) in sizes.enumerate() {
        if random.f64() < 1.0 / A_DIRECTORY {
            let up = random.usize(0..=dirs.len().min(3));
            dirs.truncate((dirs.len() - up).clamp(1, DEEPEST));
            let dir = dirs[dirs.len() - 1].join(format!("dir{number}"));
            tree.push(Made::Dir(dir.clone()));
            dirs.push(dir);
        }
        let parent = &dirs[dirs.len() - 1];
        let name = format!("file-{number:06}");
        if random.u64(0..A_LINK) == 0 {
            tree.push(Made::Symlink(parent.join(format!("link-{number:06}")), name.clone().into()));
        }
        tree.push(Made::File(parent.join(name), size));
    }
}

/// Box and Muller's way to a normal number, as the logarithm of the result.
fn log_normal(random: &mut Rng) -> f64 {
    let normal = (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (TAU * random.f64()).cos();
    (SPREAD * normal).exp()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn of(seed: u64, counts: f64) -> Vec<Made> {
        let work = MadeTree { files: 20_000, bytes: "800M".parse().expect("a size") };
        made(&work, &Settings { seed, counts, ..Settings::default() })
    }

    #[test]
    fn a_made_tree_has_the_requested_files_and_bytes() {
        let tree = of(1, 1.0);
        let mut dirs: BTreeSet<&Path> = BTreeSet::new();
        let mut sizes = Vec::new();
        for made in &tree {
            let (path, is_new) = match made {
                Made::Dir(path) => (path, dirs.insert(path)),
                Made::File(path, size) => {
                    sizes.push(*size);
                    (path, true)
                }
                Made::Symlink(path, _) => (path, true),
            };
            let parent = path.parent().expect("below a top");
            assert!(is_new && (parent == Path::new("") || dirs.contains(parent)), "{path:?}");
        }
        assert_eq!(sizes.len(), 20_000);
        let sum: u64 = sizes.iter().sum();
        assert!((800 << 20) - sum < 20_000, "{sum}");
        sizes.sort_unstable();
        let (median, mean) = (sizes[10_000], sum / 20_000);
        assert!(mean > 5 * median && median > 1000, "{median} and {mean}");
        let links = tree.iter().filter(|made| matches!(made, Made::Symlink(..))).count();
        assert!((1000..1500).contains(&links) && (1200..2200).contains(&dirs.len()), "{links}");
        let tops = dirs.iter().filter(|dir| dir.parent() == Some(Path::new("")));
        assert_eq!(tops.count(), TOPS.len());
    }

    #[test]
    fn the_same_seed_gives_the_same_tree() {
        assert_eq!(of(3, 0.01), of(3, 0.01));
        assert_ne!(of(3, 0.01), of(4, 0.01));
        let files = |tree: &[Made]| {
            let sizes = tree.iter().filter_map(|made| match made {
                Made::File(_, size) => Some(*size),
                _ => None,
            });
            (sizes.clone().count(), sizes.sum::<u64>())
        };
        let (count, bytes) = files(&of(3, 0.01));
        assert!(count == 200 && bytes.abs_diff(8 << 20) < 1 << 20, "{count} with {bytes}");
        assert_eq!(of(3, 0.000_001).len(), 9, "one file");
    }
}
