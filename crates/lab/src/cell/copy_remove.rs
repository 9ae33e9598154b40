//! Document 000: copies a real tree, or one generated in its place, mounts the volume again and
//! removes the copy.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::error::{CellError, Trying};
use super::protocol::Cell;
use super::recorder::Recorder;
use super::volume::{MountedVolume, TargetVolume, volume_size};
use crate::experiment::CopyRemove;
use crate::files::{make_copied, make_filled};
use crate::tree::{self, Made};

/// Room on the volume, in multiples of what is copied.
const ROOM: u64 = 2;
/// Room for each file: its block's rest, inode and name.
const FILE_ROOM: u64 = 16 << 10;
/// Volumes of every target can be that small.
const LEAST_VOLUME: u64 = 1 << 30;
/// Bytes copied at once.
const PIECE: usize = 128 << 10;
/// Below the volume's root.
const DIR: &str = "copy";

/// A tree as it is copied: directories before what is in them.
struct Tree {
    entries: Vec<Entry>,
    bytes: u64,
}

struct Entry {
    /// Below the copy.
    to: PathBuf,
    kind: EntryKind,
}

enum EntryKind {
    Dir,
    /// A file of this machine.
    File(PathBuf),
    /// A file of this many zero bytes.
    Zeroes(u64),
    Symlink(PathBuf),
}

pub(super) fn run(
    cell: &Cell,
    work: &CopyRemove,
    recorder: &mut Recorder<'_>,
) -> Result<(), CellError> {
    recorder.announce("looking at the tree");
    let stands_alone = work.trees.is_empty() || cell.target.system.drive().is_some();
    let tree = match work.made.filter(|_| stands_alone) {
        Some(made) => Tree::made(tree::made(&made, &cell.settings)),
        None => {
            let most = cell.settings.size(work.bytes.0);
            Tree::of(&work.trees, most, cell.settings.count(work.files))?
        }
    };
    let place = TargetVolume::new(cell)?;
    let room = tree.bytes.saturating_mul(ROOM);
    let room = room.saturating_add((tree.entries.len() as u64).saturating_mul(FILE_ROOM));
    recorder.announce("mkfs");
    place.format(volume_size(room, LEAST_VOLUME))?;

    let mounted = place.mount()?;
    recorder.follow(&mounted);
    recorder.timed("cp", || tree.copy(&mounted))?;
    recorder.record("cp", "files", tree.entries.len() as f64);
    recorder.record("cp", "io_bytes", tree.bytes as f64);
    recorder.timed("umount after cp", || mounted.close())?;

    let mounted = place.mount()?;
    recorder.follow(&mounted);
    let root = mounted.root.join(DIR);
    let (_, seconds) = recorder.timed("rm", || mounted.files.remove_tree(&root).trying("rm"))?;
    recorder.record("rm", "remove_seconds", seconds);
    recorder.timed("umount after rm", || mounted.close())?;
    Ok(())
}

impl Tree {
    /// Trees of this machine, in the order of their names, up to a number of bytes and files. Only
    /// directories, files and symbolic links are copied, and unreadable ones are left out.
    fn of(roots: &[PathBuf], most_bytes: u64, most_files: u64) -> Result<Self, CellError> {
        let mut tree = Self { entries: Vec::new(), bytes: 0 };
        for root in roots {
            let name = root.file_name().ok_or_else(|| CellError::new("/ cannot be copied"))?;
            let found = fs::symlink_metadata(root).trying(root.display())?;
            if !found.is_dir() {
                return Err(CellError(format!("{}: not a directory", root.display())));
            }
            tree.add(root, Path::new(name), most_bytes, most_files);
        }
        Ok(tree)
    }

    /// A tree that was made up.
    fn made(tree: Vec<Made>) -> Self {
        let mut bytes = 0;
        let entry = |made| match made {
            Made::Dir(to) => Entry { to, kind: EntryKind::Dir },
            Made::Symlink(to, target) => Entry { to, kind: EntryKind::Symlink(target) },
            Made::File(to, size) => {
                bytes = u64::saturating_add(bytes, size);
                Entry { to, kind: EntryKind::Zeroes(size) }
            }
        };
        let entries = tree.into_iter().map(entry).collect();
        Self { entries, bytes }
    }

    fn add(&mut self, from: &Path, to: &Path, most_bytes: u64, most_files: u64) {
        let Ok(names) = fs::read_dir(from) else { return };
        self.entries.push(Entry { to: to.to_owned(), kind: EntryKind::Dir });
        let mut names: Vec<_> = names.flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            if self.bytes >= most_bytes || self.entries.len() as u64 >= most_files {
                return;
            }
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let Ok(found) = entry.metadata() else { continue };
            let kind = if found.is_dir() {
                self.add(&from, &to, most_bytes, most_files);
                continue;
            } else if found.is_file() && File::open(&from).is_ok() {
                self.bytes += found.len();
                EntryKind::File(from)
            } else if let Ok(target) = fs::read_link(&from) {
                EntryKind::Symlink(target)
            } else {
                continue;
            };
            self.entries.push(Entry { to, kind });
        }
    }

    /// As `cp -r` does it.
    fn copy(&self, mounted: &MountedVolume) -> Result<(), CellError> {
        let root = mounted.root.join(DIR);
        mounted.files.create_dir(&root).trying("mkdir")?;
        let (mut buffer, zeroes) = (vec![0; PIECE], vec![0; PIECE]);
        for entry in &self.entries {
            let to = root.join(&entry.to);
            let copied = match &entry.kind {
                EntryKind::Dir => mounted.files.create_dir(&to),
                EntryKind::Symlink(target) => mounted.files.symlink(target, &to),
                EntryKind::File(from) => File::open(from)
                    .and_then(|from| make_copied(&*mounted.files, &to, from, &mut buffer)),
                EntryKind::Zeroes(size) => make_filled(&*mounted.files, &to, *size, &zeroes),
            };
            copied.trying(format_args!("cp {}", entry.to.display()))?;
        }
        Ok(())
    }
}
