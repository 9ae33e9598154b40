//! Trees of files to build images from: the same seed and options give the same tree.
//!
//! | directory | holds |
//! |---|---|
//! | `plain` | files of 0 bytes to several megabytes, at sizes around block and extent limits |
//! | `sparse` | holes at the start, in the middle, at the end; a file that is one large hole |
//! | `many` | one directory with many names, so that it is hashed |
//! | `names` | 255-byte names, names that are not UTF-8, names with spaces and newlines |
//! | `links` | hard links within and across directories; symlinks short, long, dangling |
//! | `times` | before 1970, after 2038, with nanoseconds |
//! | `modes` | every permission bit |
//! | `xattrs` | attributes small and large, empty, many, and ACLs |
//! | `special` | fifo and socket; as root also devices, owners, capabilities, trusted attributes |
//! | `deep` | directories within directories |

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

/// The parameters of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of names in the directory `many`.
    pub many: usize,
    /// Size in bytes of the largest file with data.
    pub largest: usize,
    /// Depth of nested directories below `deep`.
    pub depth: usize,
    /// Whether to create devices, other owners, capabilities, trusted attributes, which needs root.
    pub privileged: bool,
    /// Whether to create extended attributes and ACLs.
    pub xattrs: bool,
    /// Block size that the longest symlinks and largest attributes must fit, 1024 to 4096 bytes.
    pub block: usize,
}

impl Default for Options {
    /// About 600 entries and 6 MB, created within a tenth of a second; privileged if possible.
    fn default() -> Self {
        Self {
            many: 400,
            largest: 3 << 20,
            depth: 40,
            privileged: crate::is_root(),
            xattrs: true,
            block: 4096,
        }
    }
}

/// Random numbers from a seed: SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator, with a different sequence for every seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// That many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.number().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

/// Creates the tree at `root`, which must not exist.
pub fn grow(root: &Path, seed: u64, options: &Options) -> io::Result<()> {
    let mut grower =
        Grower { root: root.to_owned(), random: Random::new(seed), times: BTreeMap::new() };
    fs::create_dir(root)?;
    grower.plain(options)?;
    grower.sparse()?;
    grower.many(options.many)?;
    grower.names()?;
    grower.links(options.block)?;
    grower.dated_files()?;
    grower.modes()?;
    grower.deep(options.depth)?;
    grower.special()?;
    if options.xattrs {
        grower.xattrs(options.block)?;
        grower.acls()?;
    }
    if options.privileged {
        grower.privileged(options.xattrs)?;
    }
    grower.set_times()
}

struct Grower {
    root: PathBuf,
    random: Random,
    /// Set at the end, as creating an entry changes its directory's time. Seconds and nanoseconds.
    times: BTreeMap<PathBuf, (i64, i64)>,
}

impl Grower {
    /// A new path of the tree, whose time is set at the end.
    fn path(&mut self, name: impl AsRef<OsStr>) -> PathBuf {
        let path = self.root.join(name.as_ref());
        let (seconds, nanoseconds) = (self.random.below(1 << 30), self.random.below(1_000_000_000));
        self.times.insert(path.clone(), (1_000_000_000 + seconds as i64 / 2, nanoseconds as i64));
        path
    }

    fn dir(&mut self, name: impl AsRef<OsStr>) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir(&path)?;
        mode(&path, 0o755)?;
        Ok(path)
    }

    fn file(&mut self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, content)?;
        mode(&path, 0o644)?;
        Ok(path)
    }

    fn plain(&mut self, options: &Options) -> io::Result<()> {
        self.dir("plain")?;
        let edges = [0, 1, 59, 60, 61, 100, 160, 1023, 1024, 1025, 4095, 4096, 4097, 12 * 1024 + 1];
        let larger = [12 * 4096 + 1, 65_536, 268 * 1024 + 1, 1 << 20, options.largest];
        for (index, size) in edges.into_iter().chain(larger).enumerate() {
            let content = self.random.bytes(size.min(options.largest));
            self.file(format!("plain/file-{index:04}"), &content)?;
        }
        self.file("plain/zeros", &[0; 3 * 4096])?;
        self.file("plain/text", "the same line again and again\n".repeat(2000).as_bytes())?;
        Ok(())
    }

    fn sparse(&mut self) -> io::Result<()> {
        self.dir("sparse")?;
        let pieces: [(&str, u64, &[u64]); 5] = [
            ("start", 1 << 20, &[(1 << 20) - 4096]),
            ("middle", 1 << 20, &[0, (1 << 20) - 5000]),
            ("end", 1 << 20, &[0]),
            ("all", 5 << 30, &[]),
            ("comb", 1 << 20, &[0, 65_536, 131_072, 196_608, 262_144, 327_680, 393_216]),
        ];
        for (name, size, starts) in pieces {
            let path = self.file(format!("sparse/{name}"), &[])?;
            let file = File::options().write(true).open(path)?;
            file.set_len(size)?;
            for start in starts {
                file.write_all_at(&self.random.bytes(4096), *start)?;
            }
        }
        Ok(())
    }

    fn many(&mut self, count: usize) -> io::Result<()> {
        self.dir("many")?;
        for index in 0..count {
            let tail = self.random.number();
            let length = 4 + self.random.below(13) as usize;
            self.file(format!("many/{index:05}-{}", &format!("{tail:016x}")[..length]), &[])?;
        }
        Ok(())
    }

    fn names(&mut self) -> io::Result<()> {
        self.dir("names")?;
        let longest = "n".repeat(255);
        let umlauts = "ü".repeat(127);
        let names: [&[u8]; 10] = [
            longest.as_bytes(),
            umlauts.as_bytes(),
            b"with space",
            b"new\nline",
            b"tab\tquote\"'\\",
            b"latin-1 \xe4\xf6\xfc",
            b"\xff\xfe",
            b"-dash",
            "日本語".as_bytes(),
            b"...",
        ];
        for name in names {
            self.file(OsStr::from_bytes(&[b"names/", name].concat()), name)?;
        }
        self.dir(format!("names/{}", "d".repeat(255)))?;
        Ok(())
    }

    fn links(&mut self, block: usize) -> io::Result<()> {
        self.dir("links")?;
        self.dir("links/other")?;
        let first = self.file("links/first", b"one inode, four names")?;
        for name in ["links/second", "links/other/third", "links/other/zeroth"] {
            let path = self.root.join(name);
            fs::hard_link(&first, path)?;
        }
        let (short, fast, slow) = ("first".to_owned(), "f".repeat(59), "s".repeat(60));
        let long = "l/".repeat(block / 4) + "end";
        let longest = "x".repeat(block - 1);
        let targets =
            [short, fast, slow, long, longest, "../plain".into(), "/absolute/nowhere".into()];
        for (index, target) in targets.iter().enumerate() {
            let path = self.path(format!("links/symlink-{index}"));
            symlink(target, path)?;
        }
        Ok(())
    }

    fn dated_files(&mut self) -> io::Result<()> {
        self.dir("times")?;
        let moments = [
            ("epoch", (0, 0)),
            ("before-1970", (-1_000_000_000, 123_456_789)),
            ("just-before-1970", (-1, 999_999_999)),
            ("first-of-ext4", (-(1 << 31), 0)),
            ("last-of-32-bits", ((1 << 31) - 1, 999_999_999)),
            ("after-2038", (1 << 31, 1)),
            ("after-2106", ((1 << 32) + 12_345, 500)),
            ("last-of-34-bits", (0x3_7fff_ffff, 999_999_999)),
        ];
        for (name, moment) in moments {
            let path = self.file(format!("times/{name}"), name.as_bytes())?;
            self.times.insert(path, moment);
        }
        Ok(())
    }

    fn modes(&mut self) -> io::Result<()> {
        self.dir("modes")?;
        for bits in [0o400, 0o600, 0o644, 0o664, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1644] {
            let path = self.file(format!("modes/file-{bits:04o}"), b"")?;
            mode(&path, bits)?;
        }
        for bits in [0o700, 0o1777, 0o2775] {
            let path = self.dir(format!("modes/dir-{bits:04o}"))?;
            mode(&path, bits)?;
        }
        Ok(())
    }

    fn deep(&mut self, depth: usize) -> io::Result<()> {
        let mut name = "deep".to_owned();
        self.dir(&name)?;
        for level in 0..depth {
            name.push_str(&format!("/level-{level}"));
            self.dir(&name)?;
        }
        self.file(name + "/bottom", b"the bottom").map(drop)
    }

    fn special(&mut self) -> io::Result<()> {
        self.dir("special")?;
        for (name, file_type) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
            self.node(&format!("special/{name}"), file_type, 0)?;
        }
        Ok(())
    }

    fn node(&mut self, name: &str, file_type: FileType, device: u64) -> io::Result<PathBuf> {
        let path = self.path(name);
        rustix::fs::mknodat(CWD, &path, file_type, Mode::from_raw_mode(0o640), device)?;
        mode(&path, 0o640)?;
        Ok(path)
    }

    fn xattrs(&mut self, block: usize) -> io::Result<()> {
        self.dir("xattrs")?;
        let small = self.file("xattrs/small", b"an attribute in the inode")?;
        set_xattr(&small, "user.small", b"value")?;
        let empty = self.file("xattrs/empty", b"")?;
        set_xattr(&empty, "user.empty", b"")?;
        let long_name = self.file("xattrs/long-name", b"")?;
        set_xattr(&long_name, &format!("user.{}", "a".repeat(250)), b"long name")?;
        let large = self.file("xattrs/large", b"an attribute in a block of its own")?;
        set_xattr(&large, "user.large", &self.random.bytes(block * 3 / 8))?;
        let many = self.file("xattrs/many", b"inode and block")?;
        for index in 0..20 {
            let value = self.random.bytes(index * 3 * block / 4096);
            set_xattr(&many, &format!("user.number-{index}"), &value)?;
        }
        // The same values on several files: the attribute block can be shared.
        let shared = self.random.bytes(600);
        for index in 0..4 {
            let path = self.file(format!("xattrs/shared-{index}"), b"")?;
            set_xattr(&path, "user.shared", &shared)?;
        }
        let dir = self.dir("xattrs/dir")?;
        set_xattr(&dir, "user.on-a-directory", b"yes")
    }

    fn acls(&mut self) -> io::Result<()> {
        let file = self.file("xattrs/acl", b"")?;
        let acl = acl(&[
            (1, 6, NO_ID),
            (2, 7, 1000),
            (2, 4, 1001),
            (4, 4, NO_ID),
            (16, 7, NO_ID),
            (32, 0, NO_ID),
        ]);
        set_xattr(&file, "system.posix_acl_access", &acl)?;
        let dir = self.dir("xattrs/acl-dir")?;
        let default =
            self::acl(&[(1, 7, NO_ID), (4, 5, NO_ID), (8, 7, 100), (16, 7, NO_ID), (32, 5, NO_ID)]);
        set_xattr(&dir, "system.posix_acl_default", &default)?;
        set_xattr(&dir, "system.posix_acl_access", &default)
    }

    fn privileged(&mut self, xattrs: bool) -> io::Result<()> {
        let devices = [
            ("null", FileType::CharacterDevice, 1, 3),
            ("disk", FileType::BlockDevice, 8, 1),
            ("wide", FileType::CharacterDevice, 300, 70_000),
        ];
        for (name, file_type, major, minor) in devices {
            self.node(&format!("special/{name}"), file_type, rustix::fs::makedev(major, minor))?;
        }
        for (index, id) in [1, 1000, 65_534, 65_536, 4_000_000_000].into_iter().enumerate() {
            let path = self.file(format!("special/owner-{index}"), b"")?;
            owner(&path, id, id - 1)?;
        }
        let link = self.path("special/owned-symlink");
        symlink("owner-0", &link)?;
        owner(&link, 12, 34)?;
        if xattrs {
            let capable = self.file("special/capable", b"")?;
            // VFS_CAP_REVISION_2 with the effective bit: cap_net_raw permitted.
            let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            set_xattr(&capable, "security.capability", &capability)?;
            set_xattr(&capable, "trusted.secret", b"for root")?;
            set_xattr(&link, "trusted.on-a-symlink", b"as well")?;
        }
        Ok(())
    }

    fn set_times(&mut self) -> io::Result<()> {
        let root = self.root.clone();
        self.times.insert(root, (1_234_567_890, 987_654_321));
        for (path, (seconds, nanoseconds)) in &self.times {
            let moment = Timespec { tv_sec: *seconds, tv_nsec: *nanoseconds };
            let times = Timestamps { last_access: moment, last_modification: moment };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// The ID of ACL entries without a user or group.
const NO_ID: u32 = u32::MAX;

/// The kernel's format of an ACL: version 2, then (tag, permissions, ID) in order.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn mode(path: &Path, bits: u32) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(bits))
}

fn owner(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    Ok(rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).map_err(|error| {
        let kind = io::Error::from(error).kind();
        io::Error::new(kind, format!("{}: {name}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, LoopMount, Scratch, TempImage, TreeSnapshot, assert_same_tree, skip};

    #[test]
    fn a_tree_has_every_type_and_attribute() {
        let scratch = Scratch::new();
        let root = scratch.join("tree");
        let options = Options::default();
        grow(&root, 3, &options).unwrap();
        let tree = TreeSnapshot::of_dir(&root).unwrap();
        let has = |kind| tree.entries.values().any(|entry| entry.kind == kind);
        for kind in [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket] {
            assert!(has(kind), "{kind:?}");
        }
        assert_eq!(has(Kind::BlockDevice), options.privileged);
        assert_eq!(tree.entries[&b"links/first"[..]].links, 4);
        assert_eq!(
            tree.entries[&b"links/second"[..]].same_as.as_deref(),
            Some(&b"links/first"[..])
        );
        assert!(
            tree.entries[&b"xattrs/acl"[..]].xattrs.contains_key(&b"system.posix_acl_access"[..])
        );
        assert_eq!(tree.entries[&b"times/before-1970"[..]].mtime, (-1_000_000_000, 123_456_789));
        assert_eq!(tree.entries[&b"sparse/all"[..]].size, 5 << 30);
        assert!(tree.entries.contains_key(&b"names/\xff\xfe"[..]));
    }

    #[test]
    fn a_tree_survives_a_copy_onto_a_kernel_mount() {
        [1024, 4096].into_iter().for_each(copy_onto_a_kernel_mount);
    }

    fn copy_onto_a_kernel_mount(block: usize) {
        if !crate::is_root() {
            skip!("a loop mount needs root");
        }
        let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", &block.to_string()])
        {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let mount = match LoopMount::new(&image.path(), "") {
            Ok(mount) => mount,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        let scratch = Scratch::new();
        let root = scratch.join("tree");
        grow(&root, 5, &Options { block, ..Options::default() }).unwrap();
        let copied = mount.path().join("copy");
        let status = std::process::Command::new("cp").arg("-a").arg(&root).arg(&copied).status();
        assert!(status.unwrap().success());
        let expected = TreeSnapshot::of_dir(&root).unwrap();
        assert_same_tree(&expected, &TreeSnapshot::of_dir(&copied).unwrap());
        mount.unmount().unwrap();
        assert_eq!(crate::e2fsck_fn(&image.path()), Ok(()));
    }
}
