//! Snapshots of file trees for comparisons.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use sha2::{Digest as _, Sha256};

/// Block size in bytes for hashing contents; blocks of zeros do not count, stored or hole.
const BLOCK: u64 = 4096;
/// Number of bytes read at once.
const PIECE: u64 = 1 << 18;
/// Maximum number of differences in a message; further ones are only counted.
const SHOWN: usize = 40;

/// A file's type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the types of POSIX")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    BlockDevice,
    CharDevice,
    Fifo,
    Socket,
}

/// SHA-256 of a file's non-zero blocks and their offsets: holes and stored zeros are equal.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Digest([u8; 32]);

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// A file of a tree. ctime is left out as it cannot be set, atime as reading changes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The file's type.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: the low twelve of the mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of a file's content or a symlink's target; 0 for everything else, directories too:
    /// their size belongs to the file system, not to the tree.
    pub size: u64,
    /// Number of hard links; for directories 2 plus subdirectories, or 1 if that is not counted.
    pub links: u64,
    /// Modification time: seconds since 1970 and nanoseconds.
    pub mtime: (i64, i64),
    /// Device number of block and character devices, as (major, minor).
    pub rdev: Option<(u32, u32)>,
    /// Extended attributes by full name, ACLs among them in the kernel's form.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A symlink's target.
    pub target: Option<Vec<u8>>,
    /// A regular file's content.
    pub content: Option<Digest>,
    /// For files with several names in the tree: the first name in byte order.
    pub same_as: Option<Vec<u8>>,
}

/// A tree as a map from path to entry; the root is the empty path, names are joined by `/`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TreeSnapshot {
    /// All entries in byte order of their paths.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

impl TreeSnapshot {
    /// Reads a directory of this machine, without other file systems mounted in it.
    pub fn of_dir(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        let mut by_inode = HashMap::<(u64, u64), Vec<Vec<u8>>>::new();
        let mut waiting = vec![(Vec::new(), root.to_owned())];
        while let Some((name, path)) = waiting.pop() {
            let metadata = named(&path, std::fs::symlink_metadata(&path))?;
            if metadata.is_dir() {
                for child in named(&path, std::fs::read_dir(&path))? {
                    let child = named(&path, child)?.file_name();
                    let separator: &[u8] = if name.is_empty() { b"" } else { b"/" };
                    waiting.push(([&name, separator, child.as_bytes()].concat(), path.join(child)));
                }
            } else if metadata.nlink() > 1 {
                by_inode.entry((metadata.dev(), metadata.ino())).or_default().push(name.clone());
            }
            tree.entries.insert(name, named(&path, entry(&path, &metadata))?);
        }
        tree.group_hard_links(by_inode.into_values());
        Ok(tree)
    }

    /// Marks each set of names that share an inode, for trees that are not read from a directory.
    pub fn group_hard_links(&mut self, groups: impl IntoIterator<Item = Vec<Vec<u8>>>) {
        for names in groups.into_iter().filter(|names| names.len() > 1) {
            let first = names.iter().min().cloned();
            for name in names {
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.same_as.clone_from(&first);
                }
            }
        }
    }

    /// The tree without a path and everything below it; the root loses a link for a directory.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        let below = [path.as_bytes(), b"/"].concat();
        let gone = self.entries.remove(path.as_bytes());
        self.entries.retain(|name, _| !name.starts_with(&below));
        let parent = path.rfind('/').map_or(&b""[..], |at| &path.as_bytes()[..at]);
        if let (Some(Entry { kind: Kind::Directory, .. }), Some(parent)) =
            (gone, self.entries.get_mut(parent))
        {
            parent.links = parent.links.saturating_sub(u64::from(parent.links > 1));
        }
        self
    }

    /// The tree without an attribute that cannot be preserved: `|entry| entry.uid = 0`.
    #[must_use]
    pub fn map(mut self, change: impl Fn(&mut Entry)) -> Self {
        self.entries.values_mut().for_each(change);
        self
    }
}

fn named<T>(path: &Path, outcome: io::Result<T>) -> io::Result<T> {
    outcome.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn entry(path: &Path, metadata: &Metadata) -> io::Result<Entry> {
    let file_type = metadata.file_type();
    let kind = match () {
        () if file_type.is_file() => Kind::File,
        () if file_type.is_dir() => Kind::Directory,
        () if file_type.is_symlink() => Kind::Symlink,
        () if file_type.is_block_device() => Kind::BlockDevice,
        () if file_type.is_char_device() => Kind::CharDevice,
        () if file_type.is_fifo() => Kind::Fifo,
        () => Kind::Socket,
    };
    let is_device = matches!(kind, Kind::BlockDevice | Kind::CharDevice);
    let has_size = matches!(kind, Kind::File | Kind::Symlink);
    Ok(Entry {
        kind,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: if has_size { metadata.len() } else { 0 },
        links: metadata.nlink(),
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        rdev: is_device
            .then(|| (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()))),
        xattrs: xattrs(path)?,
        target: match kind {
            Kind::Symlink => Some(std::fs::read_link(path)?.as_os_str().as_bytes().to_vec()),
            _ => None,
        },
        content: match kind {
            Kind::File => Some(file_digest(path, metadata.len())?),
            _ => None,
        },
        same_as: None,
    })
}

/// The extended attributes visible in the kernel, including ACLs, which XFS and ext4 list and some
/// others do not.
fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 1 << 16];
    let length = match rustix::fs::llistxattr(path, &mut list) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        outcome => outcome?,
    };
    let mut found = BTreeMap::new();
    let acls = [&b"system.posix_acl_access"[..], b"system.posix_acl_default"];
    let listed = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut value = vec![0; 1 << 16];
    for name in listed.chain(acls) {
        match rustix::fs::lgetxattr(path, name, &mut value) {
            Ok(length) => drop(found.insert(name.to_vec(), value[..length].to_vec())),
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn file_digest(path: &Path, size: u64) -> io::Result<Digest> {
    let file = File::open(path)?;
    content_digest(size, data_ranges(&file, size), |at, piece| file.read_exact_at(piece, at))
}

/// The ranges of a file with data; the whole file if the file system does not report them.
fn data_ranges(file: &File, size: u64) -> Vec<Range<u64>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        ranges.push(start..end);
        at = end.max(start + 1);
    }
    ranges
}

/// The digest of content that is read through `read_at`, which fills its whole buffer from a byte
/// offset. `ranges` are ascending byte ranges outside of which the content is known to be zero;
/// `Some(0..size)` always does.
pub fn content_digest(
    size: u64,
    ranges: impl IntoIterator<Item = Range<u64>>,
    mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Digest> {
    let mut hash = Sha256::new();
    hash.update(size.to_le_bytes());
    let (mut next, mut piece) = (0, vec![0; PIECE as usize]);
    for range in ranges {
        let end = range.end.min(size);
        let mut at = (range.start / BLOCK * BLOCK).max(next);
        while at < end {
            // Whole blocks, except the file's last: a range may end inside a block.
            let stop = end.next_multiple_of(BLOCK).min(at + PIECE).min(size);
            let piece = &mut piece[..(stop - at) as usize];
            read_at(at, piece)?;
            for (index, block) in (0u64..).zip(piece.chunks(BLOCK as usize)) {
                if block.iter().any(|byte| *byte != 0) {
                    hash.update((at + index * BLOCK).to_le_bytes());
                    hash.update(block);
                }
            }
            at = stop;
        }
        next = next.max(at.next_multiple_of(BLOCK));
    }
    Ok(Digest(hash.finalize().into()))
}

/// The differences between two trees, one line each; empty if they are equal. Directories' link
/// counts are compared only if both sides count them.
pub fn differences(expected: &TreeSnapshot, found: &TreeSnapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, expected) in &expected.entries {
        match found.entries.get(name) {
            None => lines.push(format!("{}: missing ({:?})", shown(name), expected.kind)),
            Some(found) => compare(name, expected, found, &mut lines),
        }
    }
    for (name, entry) in &found.entries {
        if !expected.entries.contains_key(name) {
            lines.push(format!("{}: unexpected ({:?})", shown(name), entry.kind));
        }
    }
    lines
}

/// Panics if there are differences, and prints them.
#[track_caller]
pub fn assert_same_tree(expected: &TreeSnapshot, found: &TreeSnapshot) {
    let lines = differences(expected, found);
    let more = match lines.len().saturating_sub(SHOWN) {
        0 => String::new(),
        count => format!("\n  … and {count} more"),
    };
    let first = &lines[..lines.len().min(SHOWN)];
    assert!(lines.is_empty(), "the trees differ:\n  {}{more}", first.join("\n  "));
}

fn compare(name: &[u8], expected: &Entry, found: &Entry, lines: &mut Vec<String>) {
    let mut differs = |what: &str, expected: &dyn fmt::Debug, found: &dyn fmt::Debug| {
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        if expected != found {
            lines.push(format!("{}: {what}: expected {expected}, found {found}", shown(name)));
        }
    };
    differs("type", &expected.kind, &found.kind);
    differs("mode", &Octal(expected.mode), &Octal(found.mode));
    differs("owner", &(expected.uid, expected.gid), &(found.uid, found.gid));
    differs("size", &expected.size, &found.size);
    if expected.kind != Kind::Directory || (expected.links != 1 && found.links != 1) {
        differs("links", &expected.links, &found.links);
    }
    differs("mtime", &expected.mtime, &found.mtime);
    differs("device", &expected.rdev, &found.rdev);
    differs("target", &expected.target.as_deref().map(shown), &found.target.as_deref().map(shown));
    differs("content", &expected.content, &found.content);
    differs(
        "hard link",
        &expected.same_as.as_deref().map(shown),
        &found.same_as.as_deref().map(shown),
    );
    let names = expected.xattrs.keys().chain(found.xattrs.keys());
    for xattr in names.collect::<std::collections::BTreeSet<_>>() {
        let value = |entry: &Entry| entry.xattrs.get(xattr).map(|value| shown(value));
        differs(&format!("xattr {}", shown(xattr)), &value(expected), &value(found));
    }
}

struct Octal(u32);

impl fmt::Debug for Octal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#o}", self.0)
    }
}

/// Bytes as text, truncated if long; the root as `.`.
fn shown(bytes: &[u8]) -> String {
    let mut text = if bytes.is_empty() { ".".into() } else { bytes.escape_ascii().to_string() };
    if text.len() > 160 {
        text.truncate(160);
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}

impl TreeSnapshot {
    /// The path of an entry below `root`.
    pub fn host_path(root: &Path, name: &[u8]) -> PathBuf {
        root.join(std::ffi::OsStr::from_bytes(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scratch, tree};
    use std::fs;

    fn two_trees() -> (Scratch, PathBuf, PathBuf) {
        let scratch = Scratch::new();
        let (a, b) = (scratch.join("a"), scratch.join("b"));
        for root in [&a, &b] {
            tree::grow(root, 11, &tree::Options::default()).unwrap();
        }
        (scratch, a, b)
    }

    #[test]
    fn the_same_seed_grows_the_same_tree() {
        let (_scratch, a, b) = two_trees();
        assert_same_tree(&TreeSnapshot::of_dir(&a).unwrap(), &TreeSnapshot::of_dir(&b).unwrap());
    }

    #[test]
    fn every_changed_fact_is_named() {
        let (_scratch, a, b) = two_trees();
        let before = TreeSnapshot::of_dir(&a).unwrap();
        let file = b.join("plain/file-0001");
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, "other content").unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
        fs::set_permissions(
            b.join("plain/file-0002"),
            std::os::unix::fs::PermissionsExt::from_mode(0o4711),
        )
        .unwrap();
        fs::write(b.join("plain/new"), "").unwrap();
        let lines = differences(&before, &TreeSnapshot::of_dir(&b).unwrap()).join("\n");
        for what in [
            "plain/file-0001: size",
            "plain/file-0001: content",
            "plain/file-0002: mode",
            "found 0o4711",
            "plain/new: unexpected (File)",
            "plain: mtime",
        ] {
            assert!(lines.contains(what), "{what} is not in\n{lines}");
        }
        assert!(!lines.contains("file-0003"), "{lines}");
    }

    #[test]
    fn a_digest_does_not_see_whether_zeros_are_stored() {
        let scratch = Scratch::new();
        let (stored, hole) = (scratch.join("stored"), scratch.join("hole"));
        let mut bytes = vec![0; 3 * 4096 + 5];
        bytes[2 * 4096] = 1;
        fs::write(&stored, &bytes).unwrap();
        let file = File::create(&hole).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_all_at(&[1], 2 * 4096).unwrap();
        let size = bytes.len() as u64;
        let digest = file_digest(&stored, size).unwrap();
        assert_eq!(file_digest(&hole, size).unwrap(), digest);
        let whole = content_digest(size, Some(0..size), |at, piece| {
            piece.copy_from_slice(&bytes[at as usize..][..piece.len()]);
            Ok(())
        });
        assert_eq!(whole.unwrap(), digest);
        file.write_all_at(&[1], 4096).unwrap();
        assert_ne!(file_digest(&hole, size).unwrap(), digest);
    }
}
