//! Names that directories had: those of old copies of their blocks, and where directories are.

use std::collections::{BTreeMap, HashMap, HashSet};

use extant_ondisk::dirent::DirFormat;
use extant_ondisk::{BlockNo, FileBlock, InodeNo};
use extant_reader::read::dir::read_dir;
use extant_reader::read::dir_block::block_kind;
use extant_reader::{LoadedInode, MetadataRead, Reader, VolumeRead};

use super::RescueError;
use super::log_copies::Commit;
use super::past::Past;

/// A name that a directory had once.
#[derive(Clone, Debug)]
pub(super) struct OldName {
    pub(super) dir: InodeNo,
    /// The generation of that directory: another one may have the number now.
    generation: u32,
    pub(super) name: Vec<u8>,
    /// The last commit in which the directory had it.
    pub(super) seen: Commit,
    /// The commit from which on its block had it no more; `None` where no copy shows that.
    pub(super) gone: Option<Commit>,
}

/// Where the volume's directories are now: for the paths.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// The directory above, and the name in it.
    above: HashMap<InodeNo, Above>,
}

/// The name of a directory that is there.
#[derive(Debug)]
struct Above {
    dir: InodeNo,
    name: Vec<u8>,
    /// The directory's own generation, and that of the one above.
    generations: (u32, u32),
}

/// A directory that may have owned a block, and which of its blocks it was.
type Owner = (LoadedInode, FileBlock);

/// The directories that the logged blocks belong to or belonged to.
#[derive(Debug, Default)]
pub(super) struct Owners {
    by_home: HashMap<BlockNo, Vec<Owner>>,
}

impl Owners {
    /// Notes which of the logged blocks a directory's map has.
    pub(super) fn add(&mut self, source: &Past<'_>, homes: &[BlockNo], dir: &LoadedInode) {
        if dir.is_inline() {
            return;
        }
        let end = FileBlock(dir.size >> source.geometry().block_bits());
        for run in extant_reader::read::mapping::extents(source, dir.clone(), FileBlock(0), end) {
            // A broken map ends there.
            let Ok(run) = run else { break };
            let Some(start) = run.physical() else { continue };
            let from = homes.partition_point(|home| *home < start);
            let within = homes[from..].iter().take_while(|home| home.0 < start.0 + run.len);
            for home in within {
                let at = FileBlock(run.block.0 + (home.0 - start.0));
                let known = self.by_home.entry(*home).or_default();
                let is_known = |(other, _): &Owner| {
                    (other.number, other.generation) == (dir.number, dir.generation)
                };
                if !known.iter().any(is_known) {
                    known.push((dir.clone(), at));
                }
            }
        }
    }
}

/// Walks the tree as it is now.
pub(super) fn walk(
    reader: &Reader,
    mut visit: impl FnMut(&LoadedInode),
) -> Result<Directories, RescueError> {
    let mut found = Directories::default();
    let root = reader.inode(InodeNo::ROOT)?;
    let (mut seen, mut waiting) = (HashSet::from([InodeNo::ROOT]), vec![root]);
    while let Some(dir) = waiting.pop() {
        visit(&dir);
        // A damaged directory is passed over.
        let Ok(entries) = reader.read_dir(dir.number, 0) else { continue };
        for entry in entries.filter_map(Result::ok) {
            if matches!(&entry.name[..], b"." | b"..") || seen.contains(&entry.inode) {
                continue;
            }
            if let Ok(inode) = reader.inode(entry.inode)
                && inode.is_dir()
            {
                seen.insert(entry.inode);
                let generations = (inode.generation, dir.generation);
                let above = Above { dir: dir.number, name: entry.name, generations };
                found.above.insert(entry.inode, above);
                waiting.push(inode);
            }
        }
    }
    Ok(found)
}

impl Directories {
    /// The path of an old name, from the root; a directory that is gone has the path that it had.
    /// `None` where nothing tells it.
    pub(super) fn path(&self, names: &OldNames, old: &OldName) -> Option<Vec<u8>> {
        let mut parts = vec![&old.name[..]];
        let (mut at, mut generation, mut seen) = (old.dir, old.generation, old.seen);
        let mut met = HashSet::new();
        while at != InodeNo::ROOT {
            if !met.insert((at, generation)) {
                return None;
            }
            match self.above.get(&at).filter(|above| above.generations.0 == generation) {
                Some(above) => {
                    parts.push(&above.name);
                    (at, generation) = (above.dir, above.generations.1);
                }
                None => {
                    // The name that the directory had at that commit, of all with its number.
                    let is_its = |it: &&OldName| it.gone.is_none_or(|gone| gone > seen);
                    let old = names.get(&at)?.iter().find(is_its)?;
                    parts.push(&old.name);
                    (at, generation, seen) = (old.dir, old.generation, old.seen);
                }
            }
        }
        Some(parts.iter().rev().flat_map(|part| [b"/", *part].concat()).collect())
    }
}

/// An entry: directory with its generation, name and inode.
type Entry = ((InodeNo, u32), Vec<u8>, InodeNo);

/// The entries that the copies of one part of a directory had, in the order of their commits.
#[derive(Default)]
struct Entries {
    /// Those of the copy before.
    before: HashSet<Entry>,
    seen: Option<Commit>,
}

impl Entries {
    /// Goes to the next copy: what it lacks is noted.
    fn next(&mut self, commit: Commit, entries: HashSet<Entry>, found: &mut OldNames) {
        for gone in self.before.drain().filter(|entry| !entries.contains(entry)) {
            note(found, gone, self.seen, Some(commit));
        }
        (self.before, self.seen) = (entries, Some(commit));
    }

    /// There is no later copy.
    fn finish(self, found: &mut OldNames) {
        for entry in self.before {
            note(found, entry, self.seen, None);
        }
    }
}

/// Old names by inode, those that were seen last at the end.
pub(super) type OldNames = BTreeMap<InodeNo, Vec<OldName>>;

/// The names that the log's copies of directories have and the directories have no more.
/// `inline_dirs` are copies of directories that lie in their inodes, the oldest first.
pub(super) fn old_names(
    now: &Past<'_>,
    owners: &Owners,
    homes: &[BlockNo],
    inline_dirs: &[(Commit, LoadedInode)],
) -> Result<OldNames, RescueError> {
    let (copies, geometry) = (now.copies, now.reader.geometry());
    let mut found = OldNames::new();
    for home in homes {
        let Some(owners) = owners.by_home.get(home) else { continue };
        let mut entries = Entries::default();
        for (commit, copy) in copies.of(*home) {
            let bytes = copies.bytes(copy)?;
            let is_of = |(dir, at): &&Owner| {
                block_kind(now, dir, *at).check(&bytes, *home, geometry).is_ok()
            };
            let Some((dir, at)) = owners.iter().find(is_of) else { continue };
            let format = DirFormat::new(geometry, dir.number, dir.generation);
            let all = format.entries(&bytes, *at).filter_map(Result::ok);
            let used = all
                .filter_map(|it| Some(((dir.number, dir.generation), it.name.to_vec(), it.inode?)));
            entries.next(*commit, used.filter(is_name).collect(), &mut found);
        }
        entries.finish(&mut found);
    }
    let mut inline: BTreeMap<(InodeNo, u32), Entries> = BTreeMap::new();
    for (commit, dir) in inline_dirs {
        let Ok(all) = read_dir(now, dir.clone(), 0) else { continue };
        let all =
            all.filter_map(Result::ok).map(|it| ((dir.number, dir.generation), it.name, it.inode));
        let entries = inline.entry((dir.number, dir.generation)).or_default();
        entries.next(*commit, all.filter(is_name).collect(), &mut found);
    }
    inline.into_values().for_each(|entries| entries.finish(&mut found));
    for (inode, names) in &mut found {
        names.retain(|old| {
            let is_there =
                now.reader.inode(old.dir).is_ok_and(|dir| dir.generation == old.generation);
            let found = now.reader.lookup(old.dir, &old.name);
            !(is_there && found.is_ok_and(|found| found.inode == *inode))
        });
        names.sort_by(|one, other| (one.seen, &one.name).cmp(&(other.seen, &other.name)));
    }
    found.retain(|_, names| !names.is_empty());
    Ok(found)
}

/// Whether an entry has the name of a file.
fn is_name((_, name, _): &Entry) -> bool {
    !matches!(&name[..], b"." | b".." | b"") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

fn note(
    found: &mut OldNames,
    ((dir, generation), name, inode): Entry,
    seen: Option<Commit>,
    gone: Option<Commit>,
) {
    if let Some(seen) = seen {
        found.entry(inode).or_default().push(OldName { dir, generation, name, seen, gone });
    }
}
