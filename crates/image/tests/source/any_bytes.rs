//! Any bytes may be refused as an archive, none may panic, and those that are read give a tree that hangs together.

use extant_image::source::*;
use extant_testkit::Scratch;
use proptest::prelude::*;

use crate::shown::read;
use crate::written::{Written, file_of};

/// Walks all that a tree says and reads all contents.
fn walk(tree: &Tree) {
    let mut names = vec![0; tree.node_count()];
    for (id, node) in tree.nodes() {
        for pair in tree.dirents(id).windows(2) {
            assert!(tree.name(&pair[0]) < tree.name(&pair[1]));
        }
        for dirent in tree.dirents(id) {
            assert_eq!(dirent.parent(), id);
            names[dirent.node().index()] += 1;
        }
        if node.kind() == NodeKind::Regular {
            let content = tree.open(id).unwrap();
            for segment in tree.segments(id) {
                let mut bytes = vec![0; segment.length.min(4096) as usize];
                content.read_exact_at(&mut bytes, segment.offset).unwrap();
            }
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
}

/// Few names, so that entries meet.
fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["a", "b", "c", "\\.", "\\.\\."], 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn entry() -> impl Strategy<Value = (String, u8, String, Vec<u8>)> {
    let flag = prop_oneof![
        6 => proptest::sample::select(b"0125".to_vec()),
        1 => proptest::sample::select(b"0123456xgLKSDV7".to_vec()),
    ];
    (path(), flag, path(), proptest::collection::vec(any::<u8>(), 0..20))
}

fn archive() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(entry(), 0..12).prop_map(|entries| {
        let written = entries.into_iter().fold(Written::default(), |written, entry| {
            let (name, flag, link, contents) = entry;
            written.entry(&name, flag, &link, &contents)
        });
        written.ended()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        read_bytes(&bytes);
    }

    #[test]
    fn random_entries_never_panic(bytes in archive()) {
        read_bytes(&bytes);
    }

    #[test]
    fn archives_with_flipped_bytes_never_panic(
        bytes in archive(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = bytes;
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        // A right checksum lets the change through to what lies behind it.
        for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        read_bytes(&bytes);
    }

    #[test]
    fn random_pax_records_never_panic(
        key in proptest::sample::select(vec![
            "path", "linkpath", "size", "uid", "mtime", "GNU.sparse.map", "GNU.sparse.size",
            "GNU.sparse.major", "GNU.sparse.offset", "GNU.sparse.numbytes", "SCHILY.acl.access",
            "SCHILY.xattr.system.posix_acl_default", "LIBARCHIVE.xattr.user.a", "SCHILY.devmajor",
        ]),
        value in prop_oneof!["[0-9,.-]{0,12}", "[ug:ormask,rwx0-9]{0,30}", "\\PC{0,12}"],
        major in any::<bool>(),
    ) {
        let sparse: &[u8] = if major { b"1" } else { b"0" };
        let records: [(&str, &[u8]); 2] = [("GNU.sparse.major", sparse), (key, value.as_bytes())];
        read_bytes(&Written::default().pax(&records).file("a", b"3\n0\n1\n").ended());
    }
}
