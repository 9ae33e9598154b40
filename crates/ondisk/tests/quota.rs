//! Quota files against those that e2fsck writes.

use extant_ondisk::quota::{QUOTA_BLOCK_SIZE, QuotaHeader, QuotaKind, QuotaTree, build_quota_file};
use extant_ondisk::{FormatError, InodeNo};
use extant_testkit::{Scratch, TempImage, debugfs, is_root, skip, tool};
use std::collections::BTreeMap;

/// e2fsck counts the owners of a tree again and adds them one by one.
#[test]
fn a_built_quota_file_is_the_one_that_e2fsck_writes() {
    if !is_root() {
        skip!("other owners need root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    let ids = (0..40).chain([255, 256, 300, 65_535, 65_536, 70_000, 4_000_000_000]);
    for id in ids.clone() {
        let path = source.join(id.to_string());
        std::fs::write(&path, vec![1; id as usize % 5000]).unwrap();
        std::os::unix::fs::chown(&path, Some(id), Some(id / 2)).unwrap();
    }
    let source = source.to_str().unwrap();
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "quota", "-d", source]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let Some(e2fsck) = tool("e2fsck") else { skip!("e2fsck is not installed") };
    e2fsck.run(["-fy".as_ref(), path.as_os_str()]);

    for (inode, kind, of) in [(3, QuotaKind::User, "user"), (4, QuotaKind::Group, "group")] {
        let dumped = scratch.join(of);
        debugfs(&path, &format!("dump <{inode}> {}", dumped.display())).unwrap();
        let file = std::fs::read(dumped).unwrap();
        let (blocks, _) = file.as_chunks::<QUOTA_BLOCK_SIZE>();
        let inode = InodeNo(inode);
        let header = QuotaHeader::decode(&file, kind, inode, blocks.len() as u32).unwrap();
        let read = |block: u32| Ok::<_, FormatError>(blocks[block as usize]);
        let records = QuotaTree::new(header, inode, read).records().unwrap();

        let listed = debugfs(&path, &format!("list_quota {of}")).unwrap();
        let listed: BTreeMap<u32, (u64, u64)> = listed
            .lines()
            .filter_map(|line| {
                let fields: Vec<i64> =
                    line.split_whitespace().map_while(|field| field.parse().ok()).collect();
                (fields.len() == 7)
                    .then(|| (fields[0] as u32, (fields[1] as u64, fields[4] as u64)))
            })
            .collect();
        let found: BTreeMap<u32, (u64, u64)> =
            records.iter().map(|record| (record.id, (record.space, record.inodes))).collect();
        assert_eq!(found, listed, "{of}");
        assert!(records.len() > 20);
        assert!(build_quota_file(kind, &records).unwrap() == file, "{of} quota differs");
    }
}
