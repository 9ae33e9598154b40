//! For every finding of the table an image with that damage: found, repaired, and checked by e2fsck
//! before and after.

mod answers;
mod claims;
#[path = "../common/mod.rs"]
mod common;
mod corners;
mod cuts;
mod damages;
mod ends;
mod features;
mod hand;
mod kept;
mod least;
mod marks;
mod opening;
mod orphans;
mod pass0;
mod preening;
mod reserved;
mod threads;

use std::path::Path;

use damages::{Damage, Requested};
use extant_check::{AutoPolicy, Code, HandledFinding};
use extant_testkit::{e2fsck_fn, skip, tool};
use hand::{Base, Hand, device, fsck, scan};

/// Damages with which `e2fsck -fn` 1.47.0 exits 0: it does not report them, or continues as if they
/// were repaired.
const SILENT: &[Code] = &[
    Code::FeaturesOfRevisionZero,
    Code::QuotaNumberNeedless,
    Code::ChecksumFeaturesBoth,
    Code::ChecksumSeedNeedless,
    Code::ResizeInodeNotInUse,
    Code::UuidMissing,
    Code::ExtraIsizeBad,
    Code::TimeInFuture,
    Code::HurdFiletype,
    Code::GroupDescChecksum,
    Code::JournalWithoutFeature,
    Code::JournalBackup,
    Code::JournalV1Fields,
    Code::JournalErrno,
    Code::JournalSkipped,
    Code::JournalRecovered,
    Code::JournalHasData,
    Code::JournalReplayFailed,
    Code::JournalBlockCorrupt,
    Code::JournalTransactionCorrupt,
    Code::JournalRevokeCorrupt,
    Code::OrphanListIllegal,
    Code::ExtentTreeBeyondLimit,
    Code::ExtentNodeLevel,
    Code::SpecialImmutable,
    Code::TimeBeyond,
    Code::FileTypeMissing,
    Code::LostFoundMissing,
    Code::LostFoundNotDirectory,
    Code::LostFoundEncrypted,
    Code::NoRoomForLostFound,
    Code::FreeBlocksTotalWrong,
    Code::FreeInodesTotalWrong,
    Code::QuotaFileCorrupt,
    // The kernel does not open such a file.
    Code::VerityFlag,
    Code::VerityFeatureMissing,
    // Found by later versions.
    Code::VerityFlag,
    Code::VerityFeatureMissing,
    Code::EaInodeFeatureMissing,
    Code::EaInodeFlagOnOther,
    Code::EaInodeIsFile,
    // Work that an option asks for.
    Code::DirectoryOptimized,
    Code::MapToExtents,
];

/// Findings that only a repair reports, as in e2fsck: a scan without repairs skips the case, or
/// runs before it.
const ONLY_REPAIRED: &[Code] = &[
    Code::UuidMissing,
    Code::JournalBackup,
    Code::JournalErrno,
    Code::JournalDeleted,
    Code::JournalRecreate,
    Code::JournalRegenerated,
    Code::JournalNoRoom,
    Code::JournalRecovered,
    Code::JournalReplayFailed,
    Code::JournalBlockCorrupt,
    Code::JournalTransactionCorrupt,
    Code::JournalRevokeCorrupt,
    Code::OrphanListIllegal,
    Code::OrphanCleared,
    Code::OrphanTruncated,
    Code::ExtentTreeTooDeep,
    Code::NameNotUnique,
    Code::EntryLinkToDirectory,
    Code::NoRoomForLostFound,
    Code::CloneFailed,
    Code::DirectoryOptimized,
    Code::MapToExtents,
    Code::SharedBlocksDone,
];

/// Findings that only a scan reports: in a repair, the repair of another finding fixes them.
const ONLY_SCANNED: &[Code] = &[
    Code::JournalSkipped,
    Code::JournalInodeMode,
    Code::DirectoryLinkedTwice,
    Code::InodeUninitInUse,
    Code::HighWaterWrong,
];

/// Findings left after a repair, since there is no room.
const LEFT: &[Code] = &[Code::NoRoomForLostFound];

/// Codes without an image here, each with the reason.
const ELSEWHERE: &[(&str, &[Code])] = &[
    (
        "the check ends there (see mod ends), or there is nothing to repair with",
        &[Code::DeviceTooSmall, Code::FeaturesUnknown],
    ),
    (
        "a volume of 65,000 directories is made by the builder: see the tests of the command",
        &[Code::ManyLinksFeatureMissing],
    ),
    ("asked when the repair before it was declined", answers::SECOND_QUESTIONS),
    (
        "the kernel fills the log of the journal: see the tests of evidence",
        &[Code::LogCopyCertain, Code::LogCopyPossiblyOlder, Code::OlderName],
    ),
    (
        "directories of several blocks and options: see the tests of regain",
        &[
            Code::BlockMisplaced,
            Code::InodeMisplaced,
            Code::DirectoryInodeLost,
            Code::DirectoryBlocksLost,
            Code::EncryptedDirectoryLost,
            Code::EntryPlaceholder,
            Code::UnclaimedRun,
        ],
    ),
    (
        "the kernel makes fast commits: see the tests of fast_commits",
        &[Code::FastCommitInode, Code::FastCommitsLeftOut],
    ),
    (
        "a journal on a device of its own: see mod ends and the tests of the command",
        &[Code::JournalExternal, Code::JournalDeviceNumber],
    ),
];

/// Every damage that is made here.
fn damages() -> impl Iterator<Item = &'static Damage> {
    let common = damages::DAMAGES.iter().chain(pass0::DAMAGES);
    common.chain(features::DAMAGES).chain(corners::DAMAGES)
}

fn check_image(damage: &Damage, healthy: &Path) -> Vec<String> {
    let mut flaws = Vec::new();
    let scratch = extant_testkit::Scratch::new();
    let image = scratch.join("image");
    std::fs::copy(healthy, &image).expect("scratch space takes a copy");
    (damage.spoil)(&mut Hand::on(&image));
    if let Some(dir) = std::env::var_os("EXTANT_KEEP") {
        let name = format!("{:?}.img", damage.code);
        std::fs::copy(&image, Path::new(&dir).join(name)).expect("there is room");
    }

    let spoiled = std::fs::read(&image).expect("it is there");
    let mut expected: Vec<Code> = damage.also.to_vec();
    if !ONLY_REPAIRED.contains(&damage.code) {
        expected.push(damage.code);
    }
    expected.sort_unstable();
    match scan(&image, damage.options) {
        Ok(found) if found == expected => {}
        found => flaws.push(format!("a look finds {found:?}, not {expected:?}")),
    }
    if std::fs::read(&image).expect("it is there") != spoiled {
        flaws.push("a look wrote".to_owned());
    }
    if e2fsck_fn(&image).is_ok() != SILENT.contains(&damage.code) {
        flaws.push(format!("e2fsck before: {:?}", e2fsck_fn(&image)));
    }
    // Findings without a proposed repair are only reported.
    let is_only_reported = damage.code.row().prompt.is_empty();
    let is_done =
        |it: &HandledFinding| it.finding.code == damage.code && (it.repaired || is_only_reported);
    match fsck(device(&image), &AutoPolicy::Yes, damage.options) {
        Ok(_) if ONLY_SCANNED.contains(&damage.code) => {}
        Ok(done) if done.iter().any(is_done) => {}
        done => flaws.push(format!("not repaired: {done:?}")),
    }
    if LEFT.contains(&damage.code) {
        return flaws;
    }
    if let Err(said) = e2fsck_fn(&image) {
        flaws.push(format!("e2fsck after: {said}"));
    }
    match scan(&image, Requested::Nothing) {
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
    for damage in damages() {
        if only.as_ref().is_some_and(|only| *only != format!("{:?}", damage.code)) {
            continue;
        }
        let known = made.iter().position(|(base, _)| base.name == damage.base.name);
        let at = known.unwrap_or_else(|| {
            made.push((&damage.base, damage.base.make()));
            made.len() - 1
        });
        // A mistake of the damaging code is reported like any other flaw.
        let healthy = made[at].1.path();
        let result = std::panic::catch_unwind(|| check_image(damage, &healthy));
        let flaws = result.unwrap_or_else(|_| vec!["it panicked".to_owned()]);
        if !flaws.is_empty() {
            wrong.push(format!("==== {:?}\n{}", damage.code, flaws.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), damages().count(), wrong.join("\n"));
}

#[test]
fn every_code_has_an_image_or_a_reason() {
    let excused: Vec<Code> =
        ELSEWHERE.iter().flat_map(|(_, codes)| codes.iter().copied()).collect();
    let missing: Vec<&Code> = Code::ALL
        .iter()
        .filter(|code| !excused.contains(code) && !damages().any(|it| it.code == **code))
        .collect();
    assert!(missing.is_empty(), "no image and no reason: {missing:?}");
    let both: Vec<&Code> =
        excused.iter().filter(|code| damages().any(|it| it.code == **code)).collect();
    assert!(both.is_empty(), "an image and an excuse: {both:?}");
}
