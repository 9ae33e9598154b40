//! Findings with which a check ends, or that it only tells: nothing is written.

use extant_check::front::{OpenError, OpenOptions, open};
use extant_check::{Answers, Code, Judge};
use extant_device::{Device, FileDevice, OpenOptions as FileOptions};
use extant_journal::JournalError;
use extant_ondisk::CompatFeatures;
use extant_testkit::{TempImage, skip, tool};
use std::sync::Arc;

use super::damages::{Wish, compat};
use super::hand::{EXT4, Hand, NO_JOURNAL, device, look};

/// Opens an image; it must be as before then.
fn refused(image: &TempImage, judge: &dyn Judge) -> OpenError {
    let before = std::fs::read(image.path()).expect("it is there");
    let device: Arc<dyn Device> = if judge.may_repair() {
        device(&image.path())
    } else {
        let file: FileDevice = FileOptions::new().open(image.path()).expect("the image opens");
        Arc::new(file)
    };
    let error = open(device, &OpenOptions::default(), judge).map(|_| ()).expect_err("refused");
    assert!(std::fs::read(image.path()).expect("it is there") == before, "nothing is written");
    error
}

#[test]
fn a_device_that_is_too_small_ends_the_check() {
    let Some(e2fsck) = tool("mke2fs").and(tool("e2fsck")) else {
        skip!("mke2fs and e2fsck are not installed");
    };
    let image = EXT4.make();
    let file = std::fs::File::options().write(true).open(image.path()).expect("it is there");
    file.set_len(12 << 20).expect("it becomes shorter");
    for judge in [Answers::No, Answers::Yes] {
        let error = refused(&image, &judge);
        let expected = (16 << 10, 12 << 10);
        let found = match error {
            OpenError::DeviceTooSmall { blocks, device } => (blocks, device),
            other => panic!("{judge:?}: {other}"),
        };
        assert_eq!(found, expected, "{judge:?}");
    }
    let said = e2fsck.command().arg("-fy").arg(image.path()).output().expect("it starts");
    assert!(said.status.code() >= Some(4), "e2fsck ends, too: {said:?}");
}

#[test]
fn a_journal_elsewhere_is_told_by_a_look_and_needed_by_a_repair() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = NO_JOURNAL.make();
    Hand::on(&image.path()).superblock(|raw| {
        compat(raw, CompatFeatures::HAS_JOURNAL, true);
        raw.s_journal_dev.set(0x701);
        raw.s_journal_uuid = [7; 16];
    });
    assert_eq!(look(&image.path(), Wish::Nothing), Ok(vec![Code::JournalExternal]));
    let error = refused(&image, &Answers::Yes);
    let OpenError::Journal(JournalError::ExternalJournalNeeded(uuid)) = error else {
        panic!("{error}");
    };
    assert_eq!(uuid.0, [7; 16]);
}
