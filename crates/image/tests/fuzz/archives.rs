//! Archives: any bytes may be refused, none may panic, and those that are read give a tree that
//! hangs together.

use std::io::Write as _;

use bolero::TypeGenerator;
use extant_image::source::{Archive, Halt, NodeId, NodeKind, Tree, Unpacking};
use extant_testkit::Scratch;
use extant_testkit::fuzz::{Damage, FUZZ_TIME};

use crate::shown::read;
use crate::written::{Written, file_of};

/// Walks all that a tree says and reads the first part of all contents.
pub(crate) fn walk(tree: &Tree) {
    let mut names = vec![0; tree.node_count()];
    for (id, node) in tree.nodes() {
        for pair in tree.dirents(id).windows(2) {
            assert!(tree.name(&pair[0]) < tree.name(&pair[1]));
        }
        for dirent in tree.dirents(id) {
            assert_eq!(dirent.parent(), id);
            assert!((1..=255).contains(&tree.name(dirent).len()));
            names[dirent.node().index()] += 1;
        }
        if node.kind() == NodeKind::Regular {
            let content = tree.open(id).unwrap();
            let mut end = 0;
            for segment in tree.segments(id) {
                assert!(segment.offset >= end && segment.length > 0);
                end = segment.offset + segment.length;
                let mut bytes = vec![0; segment.length.min(4096) as usize];
                content.read_exact_at(&mut bytes, segment.offset).unwrap();
            }
            assert!(end <= node.size());
        }
        assert!(tree.symlink_target(id).len() < 4096);
        assert!(tree.xattrs(id).all(|xattr| xattr.name.len() < 256));
    }
    for (id, node) in tree.nodes() {
        let is_directory = node.kind() == NodeKind::Directory;
        let expected = if is_directory { u32::from(id != NodeId::ROOT) } else { node.links() };
        assert_eq!(names[id.index()], expected, "names of {id:?}");
    }
}

fn read_bytes(bytes: &[u8]) {
    let scratch = Scratch::new();
    if let Ok(tree) = read(&[file_of(&scratch, "a", bytes)]) {
        walk(&tree);
    }
    let by_position = Archive::open(&scratch.join("a")).ok().map(unpacked);
    let once = Archive::of_reader("a", std::io::Cursor::new(bytes.to_vec())).ok().map(unpacked);
    assert_eq!(by_position, once);
}

/// All entries of an archive with their first contents, as text, and whether it is whole.
fn unpacked(archive: Archive) -> (Vec<String>, bool) {
    const MOST_BYTES: usize = 1 << 16;
    let mut found = Vec::new();
    let outcome = archive.unpack::<()>(&Unpacking::default(), &mut |member, contents| {
        assert!(member.permissions < 0o10000);
        let mut text = format!("{member:?}");
        let (mut end, mut bytes) = (0, 0);
        while let Some(piece) = contents.next(1000)? {
            assert!(piece.offset >= end && !piece.bytes.is_empty());
            end = piece.offset + piece.bytes.len() as u64;
            bytes += piece.bytes.len();
            text.push_str(&format!(" {} {:?}", piece.offset, piece.bytes));
            if bytes > MOST_BYTES {
                break;
            }
        }
        found.push(text);
        Ok::<(), Halt<()>>(())
    });
    (found, outcome.is_ok())
}

/// Bytes of an input at most: several entries, and few enough that many inputs are tried.
pub(crate) const INPUT_BYTES: usize = 600;

/// An entry of an archive: few names, so that entries meet.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Entry {
    Usual(Path, Kind, Path, Vec<u8>),
    Odd(Path, OddFlag, Vec<u8>),
    Pax(Vec<(Key, Text)>),
    /// An extended header of any bytes.
    RawPax(Vec<u8>),
    /// The old sparse format: numbers of the map in the header.
    OldSparse(Path, Vec<(u16, u16)>, u32, bool),
}

#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Path(Vec<Part>);

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Part {
    A,
    B,
    Dot,
    DotDot,
    Root,
    Whiteout,
    Opaque,
    Long,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) struct OddFlag(u8);

#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) struct Key(u8);

/// A value of an extended header.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Text {
    Bytes(Vec<u8>),
    Number(i64, u32),
    Map(Vec<(u32, u32)>),
    Acl(Vec<(u8, u8, u8)>),
}

const KEYS: [&str; 18] = [
    "path",
    "linkpath",
    "size",
    "uid",
    "gid",
    "mtime",
    "GNU.sparse.map",
    "GNU.sparse.size",
    "GNU.sparse.realsize",
    "GNU.sparse.major",
    "GNU.sparse.minor",
    "GNU.sparse.name",
    "GNU.sparse.offset",
    "GNU.sparse.numbytes",
    "SCHILY.acl.access",
    "SCHILY.xattr.system.posix_acl_default",
    "LIBARCHIVE.xattr.user.a",
    "SCHILY.devmajor",
];

impl Path {
    fn text(&self) -> String {
        let part = |part: &Part| match part {
            Part::A => "a".to_owned(),
            Part::B => "b".to_owned(),
            Part::Dot => ".".to_owned(),
            Part::DotDot => "..".to_owned(),
            Part::Root => String::new(),
            Part::Whiteout => ".wh.a".to_owned(),
            Part::Opaque => ".wh..wh..opq".to_owned(),
            Part::Long => "l".repeat(60),
        };
        let mut text = self.0.iter().map(part).collect::<Vec<_>>().join("/");
        text.truncate(99); // size of the header's field
        text
    }
}

impl Text {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Number(whole, fraction) if fraction % 2 == 0 => whole.to_string().into(),
            Self::Number(whole, fraction) => format!("{whole}.{fraction}").into(),
            Self::Map(map) => {
                let pairs = map.iter().map(|(at, length)| format!("{at},{length}"));
                pairs.collect::<Vec<_>>().join(",").into()
            }
            Self::Acl(entries) => {
                let tags = ["user", "group", "mask", "other", "u", "default:user"];
                let entry = |&(tag, id, bits): &(u8, u8, u8)| {
                    let who = if id % 3 == 0 { String::new() } else { id.to_string() };
                    let bits = ["rwx", "r--", "---", "rw", "x"][usize::from(bits) % 5];
                    format!("{}:{who}:{bits}", tags[usize::from(tag) % tags.len()])
                };
                entries.iter().map(entry).collect::<Vec<_>>().join(",").into()
            }
        }
    }
}

/// The archive with its end.
pub(crate) fn archive(entries: &[Entry]) -> Written {
    entries.iter().fold(Written::default(), |written, entry| match entry {
        Entry::Usual(path, kind, link, contents) => {
            let flag = match kind {
                Kind::File => b'0',
                Kind::HardLink => b'1',
                Kind::Symlink => b'2',
                Kind::Directory => b'5',
            };
            written.entry(&path.text(), flag, &link.text(), contents)
        }
        Entry::Odd(path, flag, contents) => {
            let flags = b"0123456xgLKSDV7N\0Z";
            let flag = flags[usize::from(flag.0) % flags.len()];
            written.entry(&path.text(), flag, "a", contents)
        }
        Entry::Pax(records) => {
            let records: Vec<_> = records
                .iter()
                .map(|(key, value)| (KEYS[usize::from(key.0) % KEYS.len()], value.bytes()))
                .collect();
            let records: Vec<_> =
                records.iter().map(|(key, value)| (*key, value.as_slice())).collect();
            written.pax(&records)
        }
        Entry::RawPax(bytes) => written.entry("pax", b'x', "", bytes),
        Entry::OldSparse(path, map, size, is_extended) => {
            let data: usize = map.iter().take(4).map(|(_, length)| usize::from(*length)).sum();
            written.changed_entry(&path.text(), b'S', "", &vec![7; data % 5000], |block| {
                for (slot, (at, length)) in map.iter().take(4).enumerate() {
                    let field = 386 + slot * 24;
                    block[field..field + 12].copy_from_slice(format!("{at:011o}\0").as_bytes());
                    block[field + 12..field + 24]
                        .copy_from_slice(format!("{length:011o}\0").as_bytes());
                }
                block[482] = u8::from(*is_extended);
                block[483..495].copy_from_slice(format!("{size:011o}\0").as_bytes());
                block[257..265].copy_from_slice(b"ustar  \0");
            })
        }
    })
}

/// Right checksums let damage reach the code after them.
fn mend(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

#[test]
fn tar_of_any_bytes() {
    bolero::check!()
        .with_type::<Vec<u8>>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(INPUT_BYTES)
        .for_each(|bytes| {
            read_bytes(bytes);
        });
}

#[test]
fn tar_of_odd_entries() {
    bolero::check!()
        .with_type::<Vec<Entry>>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(INPUT_BYTES)
        .for_each(|entries| {
            read_bytes(&archive(entries).ended());
        });
}

#[test]
fn damaged_tar() {
    type Input = (Vec<Entry>, Damage, bool);
    bolero::check!()
        .with_type::<Input>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(INPUT_BYTES)
        .for_each(|(entries, damage, is_mended)| {
            let mut bytes = damage.to(&archive(entries).ended());
            if *is_mended {
                mend(&mut bytes);
            }
            read_bytes(&bytes);
        });
}

#[test]
fn damaged_packed_tar() {
    type Input = (Vec<Entry>, Damage, u8);
    bolero::check!()
        .with_type::<Input>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(INPUT_BYTES)
        .for_each(|(entries, damage, packing)| {
            let bytes = archive(entries).ended();
            let packed = match packing % 3 {
                0 => {
                    let level = flate2::Compression::fast();
                    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                    encoder.write_all(&bytes).unwrap();
                    encoder.finish().unwrap()
                }
                1 => zstd::encode_all(bytes.as_slice(), 1).unwrap(),
                _ => {
                    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
                    encoder.write_all(&bytes).unwrap();
                    encoder.finish().unwrap()
                }
            };
            read_bytes(&damage.to(&packed));
        });
}
