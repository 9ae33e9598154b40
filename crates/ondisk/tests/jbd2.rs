//! The journal's format against journals written by debugfs and by the kernel, and against any
//! bytes.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use extant_ondisk::checksum::crc32_be;
use extant_ondisk::jbd2::{
    BlockType, CommitBlock, FastCommitChecksum, FastCommitRecord, FastCommitRecords, Header,
    JournalChecksum, JournalSuperblock, LogFormat, RawJournalSuperblock, TagFlags, Tags,
    revoke_records, tags,
};
use extant_ondisk::{BlockNo, Tid, Uuid};
use extant_testkit::{Scratch, TempImage, corpora, debugfs, is_root, left_dirty, skip, tool};
use proptest::prelude::*;

/// A journal as a file: the output of `dump <8>`.
struct Journal {
    bytes: Vec<u8>,
    superblock: JournalSuperblock,
    format: LogFormat,
}

/// One committed transaction.
#[derive(Debug, Default)]
struct Transaction {
    tid: u32,
    tags: Vec<(BlockNo, bool)>,
    revoked: Vec<BlockNo>,
}

impl Journal {
    fn of(image: &Path) -> Self {
        let scratch = Scratch::new();
        let file = scratch.join("journal");
        debugfs(image, &format!("dump <8> {}", file.display())).expect("debugfs dumps inode 8");
        let bytes = fs::read(&file).unwrap();
        let raw = RawJournalSuperblock::from_bytes(&bytes).unwrap();
        raw.verify().unwrap();
        let superblock = JournalSuperblock::decode(&raw).unwrap();
        let format = superblock.log_format();
        let mut written = raw;
        superblock.encode_into(&mut written);
        written.seal();
        assert_eq!(zerocopy::IntoBytes::as_bytes(&written), zerocopy::IntoBytes::as_bytes(&raw));
        Self { bytes, superblock, format }
    }

    fn block(&self, at: u32) -> &[u8] {
        let size = self.format.block_len();
        &self.bytes[at as usize * size..][..size]
    }

    /// Walks the log up to its first error; every checksum before it must be right.
    fn transactions(&self) -> Vec<Transaction> {
        let (log, mut at) = (self.superblock.log(), self.superblock.start);
        let (mut found, mut current) = (Vec::new(), Transaction::default());
        let (mut tid, mut crc) = (self.superblock.sequence, !0);
        let next = |at: u32| if at + 1 == log.end { log.start } else { at + 1 };
        while at != 0 {
            let block = self.block(at);
            let Some(header) = Header::of(block).filter(|header| header.tid == tid) else { break };
            at = next(at);
            match header.block_type {
                BlockType::Descriptor => {
                    crc = crc32_be(crc, block);
                    for tag in tags(block, &self.format).unwrap() {
                        let data = self.block(at);
                        at = next(at);
                        crc = crc32_be(crc, data);
                        if self.format.has_block_checksums() {
                            assert_eq!(tag.checksum, self.format.data_checksum(tid, data));
                        }
                        current.tags.push((tag.block, tag.flags.contains(TagFlags::ESCAPED)));
                    }
                }
                BlockType::Revoke => {
                    current.revoked.extend(revoke_records(block, &self.format).unwrap());
                }
                BlockType::Commit => {
                    let commit = CommitBlock::decode(block, &self.format).unwrap();
                    assert_eq!(commit.tid, tid);
                    // For a transaction of revokes only, debugfs writes another checksum; the
                    // kernel the initial value.
                    let is_revokes = current.tags.is_empty();
                    if let Some(stored) = commit.transaction_checksum.filter(|_| !is_revokes) {
                        assert_eq!(stored, crc, "checksum v1 of {tid:?}");
                    }
                    current.tid = tid.0;
                    found.push(std::mem::take(&mut current));
                    (tid, crc) = (tid.next(), !0);
                }
                other => panic!("{other:?} in the log"),
            }
        }
        found
    }
}

/// Runs a debugfs script that writes.
fn debugfs_write(image: &Path, script: &str) {
    let file = Scratch::new();
    let path = file.join("script");
    fs::write(&path, script).unwrap();
    let output = tool("debugfs").unwrap().run([
        "-w".as_ref(),
        "-f".as_ref(),
        path.as_os_str(),
        image.as_os_str(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn logs_that_debugfs_wrote_are_read_in_every_shape() {
    if tool("debugfs").is_none() {
        skip!("no debugfs");
    }
    let shapes = [
        ("^metadata_csum,^64bit", "", JournalChecksum::None, 8),
        ("^metadata_csum,64bit", "", JournalChecksum::None, 12),
        // Without metadata_csum debugfs always writes v1.
        ("^metadata_csum,^64bit", "-c", JournalChecksum::V1, 8),
        ("^metadata_csum,64bit", "-c", JournalChecksum::V1, 12),
        ("metadata_csum,^64bit", "-c -v 2", JournalChecksum::V2, 10),
        ("metadata_csum,64bit", "-c -v 2", JournalChecksum::V2, 14),
        ("metadata_csum,^64bit", "-c -v 3", JournalChecksum::V3, 16),
        ("metadata_csum,64bit", "-c -v 3", JournalChecksum::V3, 16),
    ];
    for (features, options, checksum, tag_size) in shapes {
        let args = ["-t", "ext4", "-b", "1024", "-O", features];
        let image = match TempImage::by_mke2fs(16 << 20, &args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let script = format!(
            "jo {options}\njw -b 333-460,2000 /dev/zero\njw -r 333,2000\njw -b 400 /dev/zero\njc\n"
        );
        debugfs_write(&image.path(), &script);
        let journal = Journal::of(&image.path());
        assert_eq!(journal.superblock.checksum(), checksum, "{features} {options}");
        assert_eq!(journal.format.tag_size(), tag_size, "{features} {options}");
        let found = journal.transactions();
        let homes: Vec<_> = (333..=460).chain([2000]).map(|home| (BlockNo(home), false)).collect();
        assert_eq!(found.len(), 3, "{features} {options}");
        assert_eq!(found[0].tags, homes);
        assert_eq!(found[1].revoked, [BlockNo(333), BlockNo(2000)]);
        assert_eq!(found[2].tags, [(BlockNo(400), false)]);
    }
}

/// Files, a directory that is removed again (revokes), and with data=journal contents that must be
/// escaped.
fn work(dir: &Path) {
    fs::create_dir(dir.join("gone")).unwrap();
    for index in 0..300 {
        fs::write(dir.join(format!("gone/a-rather-long-name-{index}")), b"x").unwrap();
    }
    File::open(dir).unwrap().sync_all().unwrap();
    // A process of its own removes the directory: programs that other tests start at this moment
    // hold what is open here, and with it the blocks of the directory, until they run.
    let removed = Command::new("rm").arg("-r").arg(dir.join("gone")).status().unwrap();
    assert!(removed.success());
    let mut magic = 0xc03b_3998_u32.to_be_bytes().to_vec();
    magic.resize(8192, 7);
    fs::write(dir.join("magic"), magic).unwrap();
    File::open(dir.join("magic")).unwrap().sync_all().unwrap();
}

#[test]
fn logs_that_the_kernel_wrote_are_read_in_every_shape() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let shapes = [
        ("metadata_csum,64bit", "data=ordered", JournalChecksum::V3),
        ("metadata_csum,^64bit", "data=journal", JournalChecksum::V3),
        ("^metadata_csum,64bit", "data=journal", JournalChecksum::None),
        ("^metadata_csum,^64bit", "data=journal,journal_checksum", JournalChecksum::V1),
        ("^metadata_csum,64bit", "data=writeback,journal_async_commit", JournalChecksum::V1),
    ];
    for (features, options, checksum) in shapes {
        let args = ["-t", "ext4", "-b", "1024", "-O", features];
        let image = match TempImage::by_mke2fs(32 << 20, &args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let copy = match left_dirty(&image.path(), options, work) {
            Ok(copy) => copy,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        let journal = Journal::of(&copy.path());
        assert_eq!(journal.superblock.checksum(), checksum, "{features} {options}");
        assert_eq!(journal.format.is_async_commit, options.contains("async"));
        let found = journal.transactions();
        assert!(found.len() >= 2, "{features} {options}: {found:?}");
        let logs_data = options.contains("data=journal");
        // If all data is journalled too, the kernel needs no revokes.
        let revokes = found.iter().any(|transaction| !transaction.revoked.is_empty());
        assert_eq!(revokes, !logs_data, "{features} {options}");
        let escaped = found.iter().flat_map(|found| &found.tags).filter(|tag| tag.1).count();
        assert_eq!(escaped > 0, logs_data, "{features} {options}");
    }
}

#[test]
fn fast_commits_that_the_kernel_wrote_are_read() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=8"];
    let image = match TempImage::by_mke2fs(64 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let dirtied = left_dirty(&image.path(), "", |dir| {
        for index in 0..20 {
            let file = dir.join(format!("file-{index}"));
            fs::write(&file, vec![b'x'; 3000]).unwrap();
            File::open(&file).unwrap().sync_all().unwrap();
        }
        fs::remove_file(dir.join("file-3")).unwrap();
        File::open(dir.join("file-4")).unwrap().sync_all().unwrap();
    });
    let copy = match dirtied {
        Ok(copy) => copy,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    let journal = Journal::of(&copy.path());
    let committed = journal.transactions().len() as u32;
    let running = Tid(journal.superblock.sequence.0 + committed);
    let mut checksum = FastCommitChecksum::new();
    let (mut names, mut tails) = (Vec::new(), 0);
    for at in journal.superblock.fast_commit_area() {
        let mut is_done = false;
        for record in FastCommitRecords::new(journal.block(at)) {
            let Ok((_, bytes, record)) = record else {
                is_done = true;
                break;
            };
            checksum.record(bytes, &record);
            match record {
                FastCommitRecord::Create(dentry) => names.push(dentry.name.to_vec()),
                FastCommitRecord::Tail(tid, stored) => {
                    assert_eq!((tid, stored), (running, checksum.value()));
                    checksum = FastCommitChecksum::new();
                    tails += 1;
                }
                FastCommitRecord::Head(features, tid) => {
                    assert_eq!((features, tid), (0, running));
                }
                _ => {}
            }
        }
        if is_done {
            break;
        }
    }
    assert!(tails >= 19, "{tails} fast commits");
    assert!(names.contains(&b"file-19".to_vec()), "{names:?}");
}

#[test]
fn damaged_journals_of_the_corpus_are_read_or_refused() {
    let Some(corpora) = corpora() else { skip!("no corpora") };
    let dir = corpora.join("journal-images");
    if tool("debugfs").is_none() || !dir.is_dir() {
        skip!("no debugfs or no journal-images");
    }
    for name in ["j_short_trans", "j_short_trans_old_csum", "j_short_uncommitted_trans"] {
        let image = TempImage::gunzipped(&dir.join(format!("{name}.img.gz"))).unwrap();
        let journal = Journal::of(&image.path());
        let committed = usize::from(!name.contains("uncommitted"));
        assert_eq!(journal.transactions().len(), committed, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random bytes may be rejected but must not panic, and iterators must end.
    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..2100),
        kind in 0_u32..7,
        shape in 0_usize..8,
        small in any::<bool>(),
    ) {
        let checksums =
            [JournalChecksum::None, JournalChecksum::V1, JournalChecksum::V2, JournalChecksum::V3];
        let format = LogFormat {
            block_size: 1024,
            checksum: checksums[shape / 2],
            is_64bit: shape % 2 == 1,
            is_async_commit: false,
            uuid: Uuid::NIL,
        };
        if small {
            bytes.resize(1024, 0);
        }
        if bytes.len() > 12 {
            bytes[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
            bytes[4..8].copy_from_slice(&kind.to_be_bytes());
        }
        let _ = Header::of(&bytes);
        prop_assert!(Tags::unverified(&bytes, &format).count() <= bytes.len() / 8);
        if let Ok(tags) = tags(&bytes, &format) {
            prop_assert!(tags.count() <= 128);
        }
        if let Ok(records) = revoke_records(&bytes, &format) {
            prop_assert!(records.count() <= 256);
        }
        let _ = CommitBlock::decode(&bytes, &format);
        prop_assert!(FastCommitRecords::new(&bytes).count() <= bytes.len() / 4 + 1);
        if let Ok(raw) = RawJournalSuperblock::from_bytes(&bytes) {
            let _ = raw.verify();
            if let Ok(superblock) = JournalSuperblock::decode(&raw) {
                let log = superblock.log();
                prop_assert!(log.start < log.end && log.end <= superblock.blocks_count);
                prop_assert!(superblock.fast_commit_area().end <= superblock.blocks_count);
            }
        }
    }
}
