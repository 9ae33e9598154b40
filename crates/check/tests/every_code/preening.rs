//! Findings at which preening stops, compared with e2fsck.

use extant_check::{AutoPolicy, Code};
use extant_testkit::{Scratch, skip, tool};

use super::damages;
use super::damages::Requested;
use super::hand::{Base, Hand, device, fsck};

/// From this exit code on errors are left, or nothing was checked.
const ERRORS_LEFT: i32 = 4;

/// Damages that preening repairs where e2fsck 1.47.0 stops, each with the reason.
const REPAIRED_HERE: &[(&str, &[Code])] = &[
    (
        "e2fsck says that it cleared the place, and then cannot open the volume",
        &[Code::MmpBlockInvalid],
    ),
    (
        "e2fsck does not read the inode tables of a group that is marked as never used: it misses the root",
        &[Code::EntryInUninitGroup, Code::InodeUninitInUse, Code::HighWaterWrong],
    ),
    ("e2fsck gives up over the journal that is not there", &[Code::JournalPlaceAmbiguous]),
    ("e2fsck makes an entry of what follows '.', and then misses '..'", &[Code::DotTooBig]),
    (
        "e2fsck takes the index off and then reads the index node as entries",
        &[Code::HtreeNodeChecksum],
    ),
];

/// Damages at which preening stops and e2fsck 1.47.0 continues, each with the reason.
const LEFT_HERE: &[(&str, &[Code])] = &[
    (
        "e2fsck 1.47.0 does not find it",
        &[
            Code::GroupTableMoved,
            Code::EaInodeFeatureMissing,
            Code::EaInodeFlagOnOther,
            Code::EaInodeIsFile,
        ],
    ),
    ("the size of a FIFO, for e2fsck, is all 64 bits of it", &[Code::FieldNotZero]),
    ("which file holds quotas is a decision: limits go with it", &[Code::QuotaInodeBad]),
];

#[test]
fn preening_stops_where_e2fsck_stops() {
    let Some(e2fsck) = tool("e2fsck").filter(|_| tool("mke2fs").is_some()) else {
        skip!("mke2fs and e2fsck are not installed");
    };
    let mut made: Vec<(&Base, extant_testkit::TempImage)> = Vec::new();
    let mut wrong = Vec::new();
    for damage in damages().filter(|it| it.options == Requested::Nothing) {
        let known = made.iter().position(|(base, _)| base.name == damage.base.name);
        let at = known.unwrap_or_else(|| {
            made.push((&damage.base, damage.base.make()));
            made.len() - 1
        });
        let scratch = Scratch::new();
        let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
        std::fs::copy(made[at].1.path(), &ours).expect("scratch space takes a copy");
        (damage.spoil)(&mut Hand::on(&ours));
        std::fs::copy(&ours, &theirs).expect("scratch space takes a copy");
        let done = e2fsck.command().arg("-fp").arg(&theirs).output().expect("it starts");
        let code = done.status.code();
        let ours = fsck(device(&ours), &AutoPolicy::Preen, Requested::Nothing);
        let other = if ours.is_err() { LEFT_HERE } else { REPAIRED_HERE };
        if other.iter().any(|(_, codes)| codes.contains(&damage.code)) {
            continue;
        }
        if ours.is_err() != code.is_none_or(|code| code >= ERRORS_LEFT) {
            let ours = ours.map(|it| it.len());
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            wrong.push(format!("==== {:?}: ours {ours:?}, e2fsck {code:?}\n{said}", damage.code));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
