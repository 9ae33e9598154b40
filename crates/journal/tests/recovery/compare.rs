//! Recovery of one dirty image by this crate and by e2fsck, compared.

use std::path::Path;
use std::process::Command;

use extant_device::{Device, FileDevice, FileDeviceOptions};
use extant_journal::{Finish, JournalLocation, Recovered, recover_volume};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{Geometry, GroupNo};
use extant_testkit::{TempImage, tool};

/// A copy of an image with its holes.
pub(crate) fn copy_of(image: &Path) -> TempImage {
    let copy = TempImage::of_size(0).unwrap();
    let mut cp = Command::new("cp");
    let status = cp.arg("--sparse=always").arg(image).arg(copy.path()).status().unwrap();
    assert!(status.success());
    copy
}

/// Recovers an image in place.
pub(crate) fn recover_in_place(image: &Path) -> Recovered {
    let device = FileDeviceOptions::new().write(true).open(image).unwrap();
    let recovered = recover_volume(&device, None, Finish::Reset).unwrap();
    recovered.expect("the volume has a journal")
}

/// `e2fsck ARGS IMAGE`: its exit status and output.
pub(crate) fn e2fsck(image: &Path, args: &[&str]) -> (i32, String) {
    let args = args.iter().map(AsRef::as_ref).chain([image.as_os_str()]);
    let output = tool("e2fsck").unwrap().run(args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text)
}

/// Byte ranges of the superblock that each recovery sets to its own time, and the checksum over
/// them.
const STAMPS: [std::ops::Range<u64>; 6] =
    [0x2c..0x34, 0x40..0x44, 0x178..0x180, 0x274..0x276, 0x277..0x278, 0x3fc..0x400];

fn is_stamp(at: u64) -> bool {
    at.checked_sub(1024).is_some_and(|at| STAMPS.iter().any(|range| range.contains(&at)))
}

/// The first few differing bytes of two images: (offset, ours, theirs).
pub(crate) fn differences(ours: &Path, theirs: &Path) -> Vec<(u64, u8, u8)> {
    let (ours, theirs) = (FileDevice::open(ours).unwrap(), FileDevice::open(theirs).unwrap());
    assert_eq!(ours.size(), theirs.size());
    let mut found = Vec::new();
    let step = 1 << 20;
    let mut at = 0;
    while at < ours.size() {
        let length = step.min(ours.size() - at);
        let range = at..at + length;
        let has_data = |device: &FileDevice| device.next_data(range.clone()).unwrap().is_some();
        if has_data(&ours) || has_data(&theirs) {
            let (mut left, mut right) = (vec![0; length as usize], vec![0; length as usize]);
            ours.read_at(at, &mut left).unwrap();
            theirs.read_at(at, &mut right).unwrap();
            if left != right {
                let pairs = left.iter().zip(&right).zip(at..);
                let differing = pairs
                    .filter(|((left, right), at)| left != right && !is_stamp(*at))
                    .map(|((left, right), at)| (at, *left, *right));
                found.extend(differing.take(16));
            }
        }
        at += length;
    }
    found
}

/// Byte ranges of the next transaction's number and of the checksum in the journal superblock.
fn sequence_places(image: &Path) -> [std::ops::Range<u64>; 2] {
    let device = FileDevice::open(image).unwrap();
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let raw = RawSuperblock::from_bytes(&bytes, GroupNo(0)).unwrap();
    let geometry = Geometry::new(&raw).unwrap();
    let place = JournalLocation::internal(&device, &raw, &geometry).unwrap();
    let (start, _) = place.runs.pieces(0, 1).next().unwrap();
    let at = geometry.byte_of(start);
    [at + 0x18..at + 0x1c, at + 0xfc..at + 0x100]
}

/// Recovers two copies of `image`, by this crate and by e2fsck, and asserts the same bytes. The
/// exception: after a broken log, our next transaction number is one that the log does not contain.
pub(crate) fn assert_as_e2fsck(image: &Path, what: &str) -> Recovered {
    let (ours, theirs) = (copy_of(image), copy_of(image));
    let recovered = recover_in_place(&ours.path());
    let (status, said) = e2fsck(&theirs.path(), &["-y", "-E", "journal_only"]);
    assert!(status <= 1, "{what}: {said}");
    let mut different = differences(&ours.path(), &theirs.path());
    if !recovered.damage.is_empty() {
        let places = sequence_places(&ours.path());
        different.retain(|(at, ..)| !places.iter().any(|place| place.contains(at)));
    }
    assert!(different.is_empty(), "{what}: {recovered:?}\n{said}\n{different:x?}");
    recovered
}
