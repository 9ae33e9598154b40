//! Findings that end a check, or that it only reports: nothing is written.

use extant_check::pass0::{CheckOpenOptions, Closing, OpenError, open};
use extant_check::{AutoPolicy, CheckError, Code, Recorder, RepairPolicy};
use extant_device::{Device, FileDevice, FileDeviceOptions};
use extant_journal::JournalError;
use extant_ondisk::{CompatFeatures, GroupNo, IncompatFeatures};
use extant_testkit::{TempImage, copied, e2fsck_fn, skip, tool};
use std::sync::Arc;

use super::damages::{Requested, compat};
use super::hand::{EXT4, Hand, LOGGED, LOGGED_BLOCK, NO_JOURNAL, SINGLE, device, fsck, scan};
use super::pass0::primary;

/// Opens an image; it must be as before then.
fn refused(image: &TempImage, policy: &dyn RepairPolicy) -> OpenError {
    let before = std::fs::read(image.path()).expect("it is there");
    let recorder = Recorder::new(policy);
    let device: Arc<dyn Device> = if recorder.may_repair() {
        device(&image.path())
    } else {
        let file: FileDevice =
            FileDeviceOptions::new().open(image.path()).expect("the image opens");
        Arc::new(file)
    };
    let error =
        open(device, &CheckOpenOptions::default(), &recorder).map(|_| ()).expect_err("refused");
    assert!(std::fs::read(image.path()).expect("it is there") == before, "nothing is written");
    error
}

/// Sets the length of an image.
fn cut(image: &TempImage, bytes: u64) {
    let file = std::fs::File::options().write(true).open(image.path()).expect("it is there");
    file.set_len(bytes).expect("it becomes shorter");
}

#[test]
fn a_device_that_is_too_small_ends_a_repair() {
    let Some(e2fsck) = tool("mke2fs").and(tool("e2fsck")) else {
        skip!("mke2fs and e2fsck are not installed");
    };
    let image = EXT4.make();
    cut(&image, 12 << 20);
    match refused(&image, &AutoPolicy::Yes) {
        OpenError::DeviceTooSmall { blocks: 16384, device: 12288 } => {}
        other => panic!("{other}"),
    }
    assert!(matches!(refused(&image, &AutoPolicy::Preen), OpenError::Check(CheckError::Stopped)));
    let said = e2fsck.command().arg("-fy").arg(image.path()).output().expect("it starts");
    assert_eq!(said.status.code(), Some(8), "e2fsck ends, too: {said:?}");
}

/// Missing blocks read as zeros; half a block at the end is missing.
#[test]
fn a_scan_continues_past_the_end_of_the_device() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT4.make();
    let last_group = Hand::on(&healthy.path()).volume.desc(GroupNo(1));
    let in_table = last_group.inode_table.0 + 1;
    for (bytes, also) in
        [((12 << 20) + 512, &[][..]), (in_table << 10, &[Code::DirectoryCorrupted][..])]
    {
        let image = copied(&healthy.path()).expect("a copy");
        cut(&image, bytes);
        let before = std::fs::read(image.path()).expect("it is there");
        let found = scan(&image.path(), Requested::Nothing).expect("it is looked at");
        assert!(found.contains(&Code::DeviceTooSmall), "{bytes}: {found:?}");
        assert!(also.iter().all(|code| found.contains(code)), "{bytes}: {found:?}");
        assert!(std::fs::read(image.path()).expect("it is there") == before, "nothing is written");
        assert_eq!(e2fsck_fn(&image.path()).is_ok(), also.is_empty(), "{bytes}");
    }
}

/// No table is allocated for more groups than a device of this size can describe, and not each of
/// many thousands of missing groups is a finding.
#[test]
fn a_volume_whose_descriptors_would_fill_the_device_is_refused() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for blocks_hi in [4, 1] {
        let image = SINGLE.make();
        primary(&Hand::on(&image.path()), |raw| {
            let groups = blocks_hi << 17;
            raw.s_blocks_count_lo.set(0);
            raw.s_blocks_count_hi.set(blocks_hi);
            raw.s_inodes_count.set(groups * raw.s_inodes_per_group.get());
        });
        let error = refused(&image, &AutoPolicy::No);
        assert!(matches!(error, OpenError::DeviceTooSmall { .. }), "{error}");
    }
}

/// The log is replayed before the size is refused; it is not emptied if one of its blocks belongs
/// past the end.
#[test]
fn the_log_of_a_volume_that_was_cut_is_replayed() {
    let Some(e2fsck) = tool("mke2fs").and(tool("e2fsck")) else {
        skip!("mke2fs and e2fsck are not installed");
    };
    let healthy = LOGGED.make();
    for (blocks, is_kept) in [(LOGGED_BLOCK + 1000, false), (LOGGED_BLOCK + 2, true)] {
        let (ours, theirs) = (copied(&healthy.path()), copied(&healthy.path()));
        let (ours, theirs) = (ours.expect("a copy"), theirs.expect("a copy"));
        cut(&ours, blocks << 10);
        cut(&theirs, blocks << 10);
        let recorder = Recorder::new(&AutoPolicy::Yes);
        let error = open(device(&ours.path()), &CheckOpenOptions::default(), &recorder);
        let error = error.map(|_| ()).expect_err("refused");
        assert!(matches!(error, OpenError::DeviceTooSmall { .. }), "{error}");
        e2fsck.command().arg("-fy").arg(theirs.path()).output().expect("it starts");
        let block = |image: &TempImage| {
            let bytes = std::fs::read(image.path()).expect("it is there");
            bytes[(LOGGED_BLOCK as usize) << 10..][..1024].to_vec()
        };
        assert_eq!(block(&ours), [b'j'; 1024]);
        assert_eq!(block(&ours), block(&theirs));
        let raw = Hand::on(&ours.path()).volume.raw;
        let waits = raw.features().incompat.contains(IncompatFeatures::RECOVER);
        assert_eq!(waits, is_kept, "{blocks} blocks");
        // On a device of full size the rest is replayed.
        cut(&ours, 16 << 20);
        fsck(device(&ours.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
        let bytes = std::fs::read(ours.path()).expect("it is there");
        let last = &bytes[(LOGGED_BLOCK as usize + 2) << 10..][..1024];
        assert_eq!(last, [b'j'; 1024]);
    }
}

#[test]
fn an_external_journal_is_reported_by_a_scan_and_needed_by_a_repair() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = NO_JOURNAL.make();
    Hand::on(&image.path()).superblock(|raw| {
        compat(raw, CompatFeatures::HAS_JOURNAL, true);
        raw.s_journal_dev.set(0x701);
        raw.s_journal_uuid = [7; 16];
    });
    assert_eq!(scan(&image.path(), Requested::Nothing), Ok(vec![Code::JournalExternal]));
    let error = refused(&image, &AutoPolicy::Yes);
    let OpenError::Journal(JournalError::ExternalJournalNeeded(uuid)) = error else {
        panic!("{error}");
    };
    assert_eq!(uuid.0, [7; 16]);
}

/// The number of the journal's device is put right where it is known, after the replay, which may
/// bring back an old one.
#[test]
fn the_number_of_a_journals_device_is_stored_where_it_is_known() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let options = ["-b", "1024", "-O", "journal_dev"];
    let journal = TempImage::by_mke2fs(8 << 20, &options).expect("it is made");
    let mut uuid = [0; 16];
    device(&journal.path()).read_at(1024 + 0x68, &mut uuid).expect("reads");
    let image = NO_JOURNAL.make();
    Hand::on(&image.path()).superblock(|raw| {
        compat(raw, CompatFeatures::HAS_JOURNAL, true);
        raw.s_journal_dev.set(0x701);
        raw.s_journal_uuid = uuid;
    });
    let number = |image: &TempImage| Hand::on(&image.path()).volume.raw.s_journal_dev.get();
    for (journal_number, answers, expected) in [
        (None, AutoPolicy::Preen, 0x701),
        (Some(0x701), AutoPolicy::Preen, 0x701),
        (Some(0x702), AutoPolicy::No, 0x701),
        (Some(0x702), AutoPolicy::Preen, 0x702),
    ] {
        let journal = Some(device(&journal.path()));
        let options = CheckOpenOptions { journal, journal_number, ..CheckOpenOptions::default() };
        let recorder = Recorder::new(&answers);
        let ready = open(device(&image.path()), &options, &recorder).expect("it opens");
        let codes: Vec<_> = recorder.findings().iter().map(|it| it.finding.code).collect();
        let is_reported = codes.contains(&Code::JournalDeviceNumber);
        assert_eq!(is_reported, journal_number == Some(0x702), "{codes:?}");
        ready.close(Closing::Skipped, &recorder).expect("writes");
        assert_eq!(number(&image), expected, "{journal_number:x?}");
    }
}
