//! For every finding of the table an image with that damage: found, repaired, and judged by e2fsck before and after.

mod cuts;
mod damages;
mod hand;

use std::path::Path;

use damages::{DAMAGES, Damage};
use extant_check::{Answers, Code};
use extant_testkit::{e2fsck_fn, skip, tool};
use hand::{Base, Hand, device, fsck, look};

/// Damages with which `e2fsck -fn` 1.47.0 exits 0: it says nothing of them, or repairs them on the way.
const SILENT: &[Code] = &[
    Code::ChecksumFeaturesBoth,
    Code::UuidMissing,
    Code::JournalWithoutFeature,
    Code::JournalBackup,
    Code::OrphanListIllegal,
    Code::SpecialImmutable,
    Code::TimeBeyond,
    Code::FileTypeMissing,
    Code::LostFoundMissing,
    Code::LostFoundNotDirectory,
    Code::FreeBlocksTotalWrong,
    Code::FreeInodesTotalWrong,
    Code::QuotaFileCorrupt,
];

/// What only a repair tells of, as with e2fsck: a look that writes nothing passes over it.
const ONLY_REPAIRED: &[Code] = &[
    Code::UuidMissing,
    Code::JournalBackup,
    Code::OrphanListIllegal,
    Code::NameNotUnique,
    Code::EntryLinkToDirectory,
];

/// Codes without an image here, each with the reason.
const ELSEWHERE: &[(&str, &[Code])] = &[
    (
        "spoiled in tests/front.rs, without files",
        &[
            Code::SuperblockInvalid,
            Code::SuperblockChecksum,
            Code::ExtraIsizeBad,
            Code::TimeInFuture,
            Code::MmpMagic,
            Code::RecoveryWithoutJournal,
            Code::JournalInvalid,
            Code::JournalInodeBroken,
            Code::GroupDescInvalid,
            Code::GroupDescChecksum,
            Code::GroupUnusedImpossible,
        ],
    ),
    (
        "met in the corpora of damaged images: several structures are wrong together there",
        &[
            Code::ResizeInodeWithMetaBg,
            Code::HurdFiletype,
            Code::JournalSuperblockCorrupt,
            Code::JournalRecovered,
            Code::JournalTransactionCorrupt,
            Code::JournalBlockCorrupt,
            Code::JournalRevokeCorrupt,
            Code::JournalErrno,
            Code::JournalDeleted,
            Code::OrphanCleared,
            Code::OrphanTruncated,
            Code::TableConflict,
            Code::TableInBadBlock,
            Code::MapOnMetadata,
            Code::DirectoryTooBig,
            Code::SpecialWithMap,
            Code::EaInInodeCollision,
            Code::EaValueInode,
            Code::EaInodeWithoutFlag,
            Code::EaInodeFlagOnOther,
            Code::EncryptWithoutContext,
            Code::EncryptionCorrupt,
            Code::ExtentNodeInvalid,
            Code::ExtentOutOfOrder,
            Code::ExtentIndexStart,
            Code::ExtentTreeTooDeep,
            Code::ClusterMisaligned,
            Code::BlockMappedOnBigalloc,
            Code::InodeGarbage,
            Code::InlineWithoutFeature,
            Code::InlineFeatureMissing,
            Code::InlineWithoutAttribute,
            Code::InlineAndExtentsIsInline,
            Code::InlineAndExtentsIsMap,
            Code::InlineAndExtentsIsJunk,
            Code::EntryInBadBlock,
            Code::DotTooBig,
            Code::DuplicateDot,
            Code::DuplicateDotDot,
            Code::DirectoryBlockMissing,
            Code::CharDeviceIllegal,
            Code::BlockDeviceIllegal,
            Code::NameNotUtf8,
            Code::EncryptedNameTooShort,
            Code::EncryptedNamesPlain,
            Code::EncryptionPolicyDiffers,
            Code::HtreeNodeChecksum,
            Code::NoRoomForLostFound,
            Code::DirectoryOptimized,
            Code::EaInodeRefcount,
            Code::EaInodeIsFile,
            Code::LargeFileFeatureMissing,
            Code::JournalRecreate,
            Code::JournalRegenerated,
        ],
    ),
    (
        "not damage: a repair is not possible, not accepted, or the check ends there",
        &[
            Code::DeviceTooSmall,
            Code::GroupTableLost,
            Code::MultiplyClaimedDelete,
            Code::CloneFailed,
            Code::JournalNoRoom,
        ],
    ),
    ("asked for by -E", &[Code::MapToExtents, Code::SharedBlocksDone]),
    (
        "a journal that waits for its replay, or lies elsewhere: no single fact makes it",
        &[
            Code::JournalV1Fields,
            Code::JournalExternal,
            Code::JournalSkipped,
            Code::JournalHasData,
            Code::JournalDataLeft,
            Code::JournalReplayFailed,
            Code::JournalInodeMode,
        ],
    ),
    (
        "no image yet: the damage needs files or features that mke2fs -d does not make, or comes with others",
        &[
            Code::GroupTablePlace,
            Code::QuotaInodeMode,
            Code::FileTooBig,
            Code::ExtentNodeChecksum,
            Code::DirectoryLinkedTwice,
            Code::SocketIllegal,
            Code::InlineDirectoryCorrupted,
            Code::InodeUninitInUse,
            Code::HighWaterWrong,
        ],
    ),
];

fn judge(damage: &Damage, healthy: &Path) -> Vec<String> {
    let mut flaws = Vec::new();
    let scratch = extant_testkit::Scratch::new();
    let image = scratch.join("image");
    std::fs::copy(healthy, &image).expect("scratch space takes a copy");
    (damage.spoil)(&mut Hand::on(&image));

    let spoiled = std::fs::read(&image).expect("it is there");
    let mut expected: Vec<Code> = damage.also.to_vec();
    if !ONLY_REPAIRED.contains(&damage.code) {
        expected.push(damage.code);
    }
    expected.sort_unstable();
    match look(&image) {
        Ok(found) if found == expected => {}
        found => flaws.push(format!("a look finds {found:?}, not {expected:?}")),
    }
    if std::fs::read(&image).expect("it is there") != spoiled {
        flaws.push("a look wrote".to_owned());
    }
    if e2fsck_fn(&image).is_ok() != SILENT.contains(&damage.code) {
        flaws.push(format!("e2fsck before: {:?}", e2fsck_fn(&image)));
    }
    match fsck(device(&image), Answers::Yes) {
        Ok(done) if done.iter().any(|it| it.finding.code == damage.code && it.repaired) => {}
        done => flaws.push(format!("not repaired: {done:?}")),
    }
    if let Err(said) = e2fsck_fn(&image) {
        flaws.push(format!("e2fsck after: {said}"));
    }
    match look(&image) {
        Ok(again) if again.is_empty() => {}
        again => flaws.push(format!("a second run: {again:?}")),
    }
    flaws
}

#[test]
fn every_damage_is_found_alone_and_repaired_and_e2fsck_agrees() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let only = std::env::var("EXTANT_CODE").ok();
    let mut made: Vec<(&Base, extant_testkit::TempImage)> = Vec::new();
    let mut wrong = Vec::new();
    for damage in DAMAGES {
        if only.as_ref().is_some_and(|only| *only != format!("{:?}", damage.code)) {
            continue;
        }
        let known = made.iter().position(|(base, _)| base.mke2fs == damage.base.mke2fs);
        let at = known.unwrap_or_else(|| {
            made.push((&damage.base, damage.base.make()));
            made.len() - 1
        });
        let flaws = judge(damage, &made[at].1.path());
        if !flaws.is_empty() {
            wrong.push(format!("==== {:?}\n{}", damage.code, flaws.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), DAMAGES.len(), wrong.join("\n"));
}

#[test]
fn every_code_has_an_image_or_a_reason() {
    let excused: Vec<Code> =
        ELSEWHERE.iter().flat_map(|(_, codes)| codes.iter().copied()).collect();
    let missing: Vec<&Code> = Code::ALL
        .iter()
        .filter(|code| !excused.contains(code) && !DAMAGES.iter().any(|it| it.code == **code))
        .collect();
    assert!(missing.is_empty(), "no image and no reason: {missing:?}");
    let both: Vec<&Code> =
        excused.iter().filter(|code| DAMAGES.iter().any(|it| it.code == **code)).collect();
    assert!(both.is_empty(), "an image and an excuse: {both:?}");
}
