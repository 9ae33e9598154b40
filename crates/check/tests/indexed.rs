//! Directories with an index that the kernel made: the tail of the leaf that it was is left in the
//! root.

mod common;

use common::{findings, fsck, options};
use extant_check::{AutoPolicy, Code};
use extant_testkit::{LoopMount, TempImage, e2fsck_fn, is_root, skip, tool};
use std::fs::{self, File};
use std::process::Command;

#[test]
fn a_directory_in_another_place_keeps_its_index() {
    if !is_root() || tool("mke2fs").is_none() || tool("debugfs").is_none() {
        skip!("needs root, mke2fs and debugfs");
    }
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]).unwrap();
    let mount = LoopMount::new(&image.path(), "").unwrap();
    let many = mount.path().join("many");
    fs::create_dir(&many).unwrap();
    for at in 0..300 {
        File::create(many.join(format!("a-long-name-{at}"))).unwrap();
    }
    mount.unmount().unwrap();
    let path = image.path();
    let debugfs = Command::new("debugfs").args(["-w", "-R", "unlink many"]).arg(&path).output();
    assert!(debugfs.unwrap().status.success());

    let report = fsck(&path, &options(), AutoPolicy::Yes).unwrap();
    let codes: Vec<_> = report.findings.iter().map(|it| it.finding.code).collect();
    assert!(codes.contains(&Code::DotDotWrong), "{}", findings(&report));
    assert!(!codes.contains(&Code::HtreeRootChecksum), "{}", findings(&report));
    e2fsck_fn(&path).unwrap_or_else(|said| panic!("{said}\n{}", findings(&report)));
    let mount = LoopMount::new(&path, "ro").unwrap();
    let found = fs::read_dir(mount.path().join("lost+found")).unwrap().next().unwrap().unwrap();
    assert_eq!(fs::read_dir(found.path()).unwrap().count(), 300);
}
