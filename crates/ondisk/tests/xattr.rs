//! Attribute blocks against those that the kernel and mke2fs write.

use extant_ondisk::acl::Acl;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::xattr::{
    NameIndex, RawXattrHeader, Value, XattrRef, XattrSet, decode_block, encode_block, is_sorted,
    seal_block, verify_block,
};
use extant_ondisk::{BlockNo, Geometry, GroupNo};
use extant_testkit::{LoopMount, Scratch, TempImage, debugfs, is_root, skip, tree};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn geometry(image: &Path) -> Geometry {
    let mut bytes = [0; 1024];
    std::fs::File::open(image).unwrap().read_exact_at(&mut bytes, 1024).unwrap();
    Geometry::new(&RawSuperblock::from_bytes(&bytes, GroupNo(0)).unwrap()).unwrap()
}

/// Every attribute block of the image, found through debugfs's view of the inodes of `dir`.
fn blocks_of(image: &Path, names: &[String]) -> Vec<(BlockNo, Vec<u8>)> {
    let file = std::fs::File::open(image).unwrap();
    let size = geometry(image).block_len();
    let mut found = Vec::new();
    for name in names {
        let stat = debugfs(image, &format!("stat \"{name}\"")).unwrap();
        let line = stat.lines().find_map(|line| line.strip_prefix("File ACL: ")).unwrap();
        let no: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
        if no != 0 {
            let mut block = vec![0; size];
            file.read_exact_at(&mut block, no * size as u64).unwrap();
            found.push((BlockNo(no), block));
        }
    }
    found
}

fn check_blocks(image: &Path, names: &[String]) -> usize {
    let geometry = geometry(image);
    let blocks = blocks_of(image, names);
    for (no, block) in &blocks {
        verify_block(block, *no, &geometry).unwrap();
        let found = decode_block(block, *no, &geometry).unwrap();
        assert!(is_sorted(&found), "{no}: {found:?}");
        assert!(found.iter().all(XattrRef::hash_matches), "{no}: {found:?}");
        let set = XattrSet::of(found.iter().copied());
        for xattr in &set.entries {
            if let (NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT, Value::Stored(bytes)) =
                (xattr.name.index, &xattr.value)
            {
                let acl = Acl::decode_disk(bytes).unwrap().unwrap();
                assert_eq!(&acl.encode_disk(), bytes);
            }
        }
        // Written again, the block has the same hash; mke2fs leaves it 0.
        let header = RawXattrHeader::from_block(block, *no).unwrap();
        let mut again = block.clone();
        encode_block(&set.entries, header.h_refcount.get(), &mut again).unwrap();
        seal_block(&mut again, *no, &geometry);
        verify_block(&again, *no, &geometry).unwrap();
        let hash = RawXattrHeader::from_block(&again, *no).unwrap().h_hash;
        assert!([hash.get(), 0].contains(&header.h_hash.get()), "{no}: {header:?}, {hash}");
        assert_eq!(decode_block(&again, *no, &geometry).unwrap().len(), found.len());
    }
    blocks.len()
}

fn grown(scratch: &Scratch, block: usize) -> (std::path::PathBuf, Vec<String>) {
    let source = scratch.join("source");
    tree::grow(&source, 11, &tree::Options { many: 0, block, ..Default::default() }).unwrap();
    let names = std::fs::read_dir(source.join("xattrs")).unwrap();
    let names = names.map(|entry| format!("xattrs/{}", entry.unwrap().file_name().display()));
    let names = names.collect();
    (source, names)
}

#[test]
fn blocks_by_mke2fs_read_and_write_back() {
    for (block, features) in [("1024", "metadata_csum"), ("4096", "^metadata_csum")] {
        let scratch = Scratch::new();
        let (source, names) = grown(&scratch, block.parse().unwrap());
        let source = source.to_str().unwrap();
        let args = ["-t", "ext4", "-b", block, "-O", features, "-d", source];
        match TempImage::by_mke2fs(64 << 20, &args) {
            Ok(image) => assert!(check_blocks(&image.path(), &names) > 3),
            Err(why) => skip!("{why}"),
        }
    }
}

#[test]
fn blocks_by_the_kernel_read_and_write_back() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    for block in ["1024", "4096"] {
        let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", block]) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let scratch = Scratch::new();
        let (source, names) = grown(&scratch, block.parse().unwrap());
        let mount = match LoopMount::new(&image.path(), "") {
            Ok(mount) => mount,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .arg(source.join("xattrs"))
            .arg(mount.path())
            .status();
        assert!(copied.unwrap().success());
        mount.unmount().unwrap();
        assert!(check_blocks(&image.path(), &names) > 3);
    }
}
