use extant_device::{Device, FileDevice};
use extant_journal::{Damage, JournalError, recover_volume};
use extant_ondisk::{Flaw, FormatError, Location, Tid};
use extant_testkit::{TempImage, corpora, e2fsck_fn, skip, tool};

use crate::compare::{assert_as_e2fsck, copy_of, differences, e2fsck, recover_in_place};

fn images() -> Option<Vec<(String, TempImage)>> {
    let dir = corpora()?.join("journal-images");
    tool("e2fsck")?;
    let mut images = Vec::new();
    for entry in std::fs::read_dir(dir).ok()? {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?.to_owned();
        if let Some(case) = name.strip_suffix(".img.gz") {
            images.push((case.to_owned(), TempImage::gunzipped(&path).ok()?));
        }
    }
    images.sort_by(|left, right| left.0.cmp(&right.0));
    Some(images)
}

#[test]
fn the_journal_images_are_recovered_as_e2fsck_does() {
    let Some(images) = images() else { skip!("no e2fsck or no journal-images") };
    let mut compared = 0;
    for (case, image) in images {
        match case.as_str() {
            // Logs that cannot be replayed, and logs that overwrite the inode of their own journal.
            "j_corrupt_sb_magic" => continue,
            _ if case.starts_with("j_long_trans_mcsum") => continue,
            "j_corrupt_journal_block" | "j_corrupt_revoke_rcount" => {
                let (ours, theirs) = (copy_of(&image.path()), copy_of(&image.path()));
                recover_in_place(&ours.path());
                e2fsck(&theirs.path(), &["-y", "-E", "journal_only"]);
                // e2fsck keeps s_sequence: new transactions would reuse numbers that are still in
                // the log.
                let found = differences(&ours.path(), &theirs.path());
                let [.., journal] = &found[..] else { panic!("{case}: {found:x?}") };
                let start = journal.0 & !0x3ff;
                let of_sequence =
                    |(at, ..): &(u64, u8, u8)| matches!(at - start, 0x18..0x1c | 0xfc..0x100);
                assert!(found.iter().all(of_sequence), "{case}: {found:x?}");
            }
            _ => {
                assert_as_e2fsck(&image.path(), &case);
            }
        }
        compared += 1;
    }
    assert!(compared >= 9, "{compared}");
}

#[test]
fn damage_in_the_log_is_told_with_its_place() {
    let Some(images) = images() else { skip!("no e2fsck or no journal-images") };
    let mut reported = 0;
    for (case, image) in images {
        let path = image.path();
        match case.as_str() {
            "j_corrupt_sb_magic" => {
                let device = FileDevice::open(&path).unwrap();
                let error = recover_volume(&device, None, extant_journal::Finish::Leave);
                let Err(JournalError::Format(FormatError::Corrupt { location, flaw })) = error
                else {
                    panic!("{error:?}");
                };
                assert_eq!(location, Location::JournalSuperblock);
                assert!(matches!(flaw, Flaw::Magic { .. }), "{flaw}");
            }
            "j_corrupt_commit_csum" => {
                let damage = recover_in_place(&path).damage;
                assert!(
                    matches!(
                        damage[..],
                        [Damage::Transaction(Tid(3), FormatError::Corrupt { .. })]
                    ),
                    "{damage:?}"
                );
            }
            "j_corrupt_journal_block" => {
                let recovered = recover_in_place(&path);
                let [Damage::Block(FormatError::Corrupt { location, .. })] = &recovered.damage[..]
                else {
                    panic!("{recovered:?}");
                };
                assert_eq!(*location, Location::JournalBlock(6));
                assert_eq!(recovered.transactions, 3);
            }
            "j_corrupt_revoke_rcount" => {
                let recovered = recover_in_place(&path);
                let flaw = Flaw::above_limit("r_count", 65535_u32, 4096_u32);
                let error = flaw.at(Location::JournalBlock(1));
                assert_eq!(recovered.damage, [Damage::Revoke(error)]);
                assert_eq!(recovered.blocks, 0);
            }
            _ => continue,
        }
        reported += 1;
    }
    assert_eq!(reported, 4);
}

/// These logs overwrite bitmaps, inode tables and the journal's own inode with zeros.
#[test]
fn e2fsck_repairs_what_a_destructive_log_left() {
    let Some(images) = images() else { skip!("no e2fsck or no journal-images") };
    for (case, image) in images {
        if case.starts_with("j_long_trans_mcsum") {
            let recovered = recover_in_place(&image.path());
            assert_eq!((recovered.transactions, recovered.blocks), (1, 4097), "{case}");
            let (status, said) = e2fsck(&image.path(), &["-fy"]);
            assert_eq!(status, 1, "{case}: {said}");
            e2fsck_fn(&image.path()).unwrap();
        }
    }
}

#[test]
fn reading_needs_no_write() {
    let Some(images) = images() else { skip!("no e2fsck or no journal-images") };
    for (case, image) in images {
        if case == "j_short_trans" {
            // A device opened for reading refuses every write, so the target must be another.
            let device = FileDevice::open(image.path()).unwrap();
            assert!(device.is_read_only());
            let error = recover_volume(&device, None, extant_journal::Finish::Leave).unwrap_err();
            assert!(matches!(error, JournalError::Device(_)), "{error}");
        }
    }
}
