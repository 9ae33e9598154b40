//! `extant journal`: the transactions that a log holds, next to debugfs's logdump and the volume.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use common::{extant, text};
use extant::inspect::{RawView, SuperblockChoice};
use extant::rooms::device::{Device, FileDevice};
use extant::rooms::journal::{JournalLocation, Log, LogHistory};
use extant_testkit::{
    LoopMount, TempImage, debugfs, dumpe2fs_h, e2fsck_fn, is_root, left_dirty, skip, tool,
};
use serde_json::Value;

/// Options of mke2fs: checksums of logs, block sizes, and a log that wraps soon.
const VOLUMES: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    &["-t", "ext3", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-O", "^64bit,orphan_file", "-J", "size=4"],
];

fn missing() -> Option<&'static str> {
    if !is_root() {
        return Some("a loop mount needs root");
    }
    ["mke2fs", "debugfs"].into_iter().find(|name| tool(name).is_none())
}

fn report(image: &Path) -> Value {
    let output = extant(["journal", "--json", image.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// Directories with files of some blocks, each in a transaction of its own.
fn grow(root: &Path, count: usize) {
    for number in 0..count {
        let dir = root.join(format!("dir-{number}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), vec![b'x'; 3000]).unwrap();
        fs::File::open(&dir).unwrap().sync_all().unwrap();
    }
}

/// Sequence numbers of descriptor blocks, by their block in the journal, and the copies after each,
/// of a log as `logdump -aO` prints it.
fn by_debugfs(image: &Path, options: &str) -> BTreeMap<u64, (u64, usize)> {
    let said = debugfs(image, &format!("logdump {options}")).unwrap_or_else(|said| said);
    let (mut found, mut sequences, mut at) = (BTreeMap::new(), BTreeMap::new(), None);
    for line in said.lines() {
        let words: Vec<_> = line.split([' ', ',', ':']).filter(|word| !word.is_empty()).collect();
        let last = words.last().and_then(|word| word.parse::<u64>().ok());
        if line.starts_with("Found expected sequence") && line.contains("(descriptor block)") {
            sequences.insert(last.unwrap(), words[3].parse::<u64>().unwrap());
        } else if line.starts_with("Dumping descriptor block") {
            at = last;
            found.insert(last.unwrap(), (sequences[&last.unwrap()], 0));
        } else if line.starts_with("  FS block") {
            found.get_mut(&at.unwrap()).unwrap().1 += 1;
        }
    }
    found
}

/// Every transaction of a log that needs a replay, and those before it.
#[test]
fn transactions_are_those_of_logdump() {
    if let Some(why) = missing() {
        skip!("{why}");
    }
    for options in VOLUMES {
        let image = TempImage::by_mke2fs(24 << 20, options).unwrap();
        let dirty = left_dirty(&image.path(), "", |root| grow(root, 12)).unwrap();
        for (image, flags) in [(dirty.path(), "-a"), (image.path(), "-aO")] {
            let theirs = by_debugfs(&image, flags);
            assert!(theirs.len() >= 12, "{options:?}: {theirs:?}");
            let report = report(&image);
            assert_eq!(report["needs_replay"], flags == "-a", "{options:?}");
            let ours = report["transactions"].as_array().unwrap();
            let mut expected = BTreeMap::<u64, usize>::new();
            theirs.values().for_each(|(tid, copies)| *expected.entry(*tid).or_default() += copies);
            for transaction in ours {
                let tid = number(transaction, "tid");
                let copies = number(transaction, "copies") as usize;
                assert_eq!(expected.remove(&tid), Some(copies), "{options:?}: {transaction}");
                assert_eq!(transaction["needs_replay"], flags == "-a");
                let kinds = transaction["kinds"].as_object().unwrap().values();
                let kinds: u64 = kinds.map(|count| count.as_u64().unwrap()).sum();
                assert_eq!(kinds, copies as u64);
            }
            assert!(expected.is_empty(), "{options:?}: {expected:?}");
            // The kernel's first transaction of a volume may have lost its first blocks.
            let second = number(&ours[1], "tid");
            let first = number(&ours[0], "tid");
            let complete = number(&report, "complete_from");
            assert!(complete == first || complete == second, "{options:?}: {report}");
        }
    }
}

/// Where the log is said to be complete, its newest copy of a block is what the volume has.
#[test]
fn the_newest_copies_of_a_complete_log_are_the_blocks_of_the_volume() {
    if let Some(why) = missing() {
        skip!("{why}");
    }
    for options in VOLUMES {
        let image = TempImage::by_mke2fs(24 << 20, options).unwrap();
        for _ in 0..3 {
            let mount = LoopMount::new(&image.path(), "").unwrap();
            let names = fs::read_dir(mount.path()).unwrap().count();
            for number in 0..60 {
                let dir = mount.path().join(format!("{names}-{number}"));
                fs::create_dir(&dir).unwrap();
                fs::File::open(&dir).unwrap().sync_all().unwrap();
            }
            mount.unmount().unwrap();
        }
        let device = Arc::new(FileDevice::open(image.path()).unwrap());
        let view = RawView::new(device.clone(), SuperblockChoice::default()).unwrap();
        let geometry = view.geometry(false).unwrap();
        let place = JournalLocation::internal(&*device, &view.raw, &geometry).unwrap();
        let log = Log { device: &*device, place: &place };
        let history = LogHistory::read(&log, &log.superblock().unwrap().1).unwrap();
        let complete = history.complete_from.unwrap();
        let mut newest = BTreeMap::new();
        let known = history.transactions.iter().filter(|it| !it.tid.is_before(complete));
        newest.extend(known.flat_map(|it| &it.copies).map(|copy| (copy.home, *copy)));
        let mut compared = 0;
        for (home, copy) in newest {
            // The kernel writes the superblock at an unmount past the log.
            if geometry.byte_of(home) <= 1024 {
                continue;
            }
            compared += 1;
            let mut block = vec![0; geometry.block_len()];
            device.read_at(geometry.byte_of(home), &mut block).unwrap();
            assert!(copy.read(&log).unwrap() == block, "{options:?}: {copy:?}");
        }
        assert!(compared > 10, "{options:?}: {compared}");
    }
}

#[test]
fn a_log_that_has_wrapped_begins_with_a_part() {
    if let Some(why) = missing() {
        skip!("{why}");
    }
    let image = TempImage::by_mke2fs(24 << 20, VOLUMES[0]).unwrap();
    let dirty = left_dirty(&image.path(), "", |root| grow(root, 160)).unwrap();
    let report = report(&dirty.path());
    let transactions = report["transactions"].as_array().unwrap();
    let first = number(&transactions[0], "tid");
    assert!(first > 20, "{first}");
    let tids = transactions.iter().map(|it| number(it, "tid"));
    assert!(tids.eq(first..first + transactions.len() as u64));
    assert!(number(&report, "complete_from") <= first + 1);
    let shown = extant(["journal", dirty.path().to_str().unwrap()]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("transactions must be replayed"), "{shown}");
    assert!(shown.contains("directory") && shown.contains("inode table"), "{shown}");
}

#[test]
fn volumes_without_a_journal_and_damaged_ones_are_refused() {
    let image = TempImage::of_size(16 << 20).unwrap();
    let path = image.path();
    let path = path.to_str().unwrap();
    assert!(extant(["mkfs", "-q", "-O", "^has_journal", path]).status.success());
    let said = extant(["journal", path]);
    assert!(!said.status.success());
    assert_eq!(text(&said.stderr), format!("extant journal: {path}: the volume has no journal\n"));
    let empty = TempImage::of_size(16 << 20).unwrap();
    assert!(!extant(["journal", empty.path().to_str().unwrap()]).status.success());
    // A new volume's log is empty.
    assert!(extant(["mkfs", "-q", "-F", path]).status.success());
    let said = text(&extant(["journal", path]).stdout);
    assert!(said.ends_with("State     nothing to replay\nComplete  not known\n"), "{said}");
    assert!(extant(["mkdir", &format!("{path}:/dir")]).status.success());
    let said = text(&extant(["journal", path]).stdout);
    assert!(said.contains("2 directory"), "{said}");
}

/// The transactions that the kernel left are on the volume then, as e2fsck sees it.
#[test]
fn recover_replays_what_the_kernel_left() {
    if let Some(why) = missing() {
        skip!("{why}");
    }
    for options in VOLUMES {
        let image = TempImage::by_mke2fs(24 << 20, options).unwrap();
        let dirty = left_dirty(&image.path(), "", |root| grow(root, 12)).unwrap();
        let (path, other) = (dirty.path(), image.path());
        let (path, other) = (path.to_str().unwrap(), other.to_str().unwrap());
        let verdict = |how: &str| {
            let output = extant(["fsck", how, "--json", path]);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            report["verdict"].as_str().unwrap().to_owned()
        };
        assert_eq!(verdict("-fn"), "needs_journal", "{options:?}");
        let output = extant(["recover", "--json", path, other, "missing.img"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 3);
        assert!(number(&lines[0], "transactions") >= 12, "{lines:?}");
        assert_eq!((number(&lines[0], "damage"), &lines[0]["error"]), (0, &Value::Null));
        assert_eq!(number(&lines[1], "transactions"), 0);
        assert!(lines[2]["error"].as_str().unwrap().contains("missing.img"));
        assert_ne!(verdict("-fn"), "needs_journal");
        // The kernel writes the superblock's counts when it unmounts: they are put right unasked.
        let preened = tool("e2fsck").unwrap().run(["-fp", path]);
        assert!(matches!(preened.status.code(), Some(0 | 1)), "{options:?}: {preened:?}");
        e2fsck_fn(&dirty.path()).unwrap();
        let listed = debugfs(&dirty.path(), "ls -p /").unwrap();
        assert!(listed.contains("/dir-11/"), "{listed}");
        let said = text(&extant(["recover", path]).stdout);
        assert!(said.ends_with(": nothing to replay\n"), "{said}");
    }
}

/// Another host that has the volume keeps it, and a volume without a journal is left alone.
#[test]
fn recover_leaves_a_volume_in_use_alone() {
    if tool("mke2fs").is_none() || tool("debugfs").is_none() {
        skip!("e2fsprogs are needed");
    }
    let plain = TempImage::by_mke2fs(8 << 20, &["-t", "ext2"]).unwrap();
    let said = text(&extant(["recover", plain.path().to_str().unwrap()]).stdout);
    assert!(said.ends_with(": no journal\n"), "{said}");
    // Without checksums, so that the number alone says that a host has the volume.
    let options = ["-t", "ext4", "-O", "mmp,^metadata_csum"];
    let image = TempImage::by_mke2fs(16 << 20, &options).unwrap();
    let path = image.path();
    let block: u64 = dumpe2fs_h(&path).unwrap()["MMP block number"].parse().unwrap();
    let size: u64 = dumpe2fs_h(&path).unwrap()["Block size"].parse().unwrap();
    let sequence = 0x1234_u32.to_le_bytes();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&sequence, block * size + 4).unwrap();
    drop(file);
    let path = path.to_str().unwrap();
    let before = fs::read(image.path()).unwrap();
    let output = extant(["recover", path]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the volume is in use"), "{said}");
    assert!(fs::read(image.path()).unwrap() == before);
}
