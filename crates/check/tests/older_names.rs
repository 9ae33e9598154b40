//! Names from older copies of directory blocks in the log, for files that have no other name.

mod common;
#[path = "common/log.rs"]
mod log;

use common::{findings, fsck, open_options, options};
use extant_check::run::{End, RunOptions, run};
use extant_check::{AutoPolicy, Code, HandledFinding, Observer, Store};
use extant_ondisk::InodeNo;
use extant_ondisk::extent::ExtentNode;
use extant_ondisk::inode::Inode;
use extant_testkit::{LoopMount, TempImage, copied, e2fsck_fn, is_root, skip, tool};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

struct Quiet;
impl Observer for Quiet {}

/// Writes zeros over the block of each directory.
fn lose_blocks(image: &Path, dirs: &[&str]) {
    let mount = LoopMount::new(image, "ro").unwrap();
    let number = |dir: &&str| fs::metadata(mount.path().join(dir)).unwrap().ino();
    let numbers: Vec<u64> = dirs.iter().map(number).collect();
    mount.unmount().unwrap();
    let device = common::open(image, true);
    let store = Store::open(device.clone()).unwrap();
    for number in numbers {
        let number = InodeNo(u32::try_from(number).unwrap());
        let record = store.read_inode(number).unwrap().unwrap();
        let inode = Inode::decode(&record, number, store.geometry()).unwrap();
        let Some(ExtentNode::Leaf([extent])) = ExtentNode::parse(&inode.i_block) else {
            panic!("a directory of one block");
        };
        let zeros = vec![0; store.geometry().block_len()];
        device.write_at(store.geometry().byte_of(extent.decode().start), &zeros).unwrap();
    }
}

/// Number of names of [`with_old_names`] that did not change.
const KEPT_NAMES: usize = 20;

fn wait_for_a_tick() {
    #[allow(clippy::disallowed_methods, reason = "the kernel's clock goes on")]
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// A volume of which the log has an old copy of the blocks of `d` and `e`, and none of the changes
/// that followed.
fn with_old_names() -> Result<TempImage, String> {
    if !is_root() || tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        return Err("needs root, mke2fs and e2fsck".to_owned());
    }
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "512"];
    let image = TempImage::by_mke2fs(24 << 20, &args)?;
    let mounted = |work: &dyn Fn(&Path, &dyn Fn())| {
        // Commits by age would fill the log on a busy machine.
        let mount = LoopMount::new(&image.path(), "commit=600")?;
        let root = fs::File::open(mount.path()).unwrap();
        work(mount.path(), &|| rustix::fs::syncfs(&root).unwrap());
        drop(root);
        mount.unmount()?;
        log::forget_head(&image.path());
        Ok::<_, String>(())
    };
    let make_dirs = |root: &Path, sync: &dyn Fn(), name: &str, count: u32| {
        for number in 0..count {
            fs::create_dir(root.join(format!("{name}{number}"))).unwrap();
            sync();
        }
    };
    mounted(&|root, sync| {
        make_dirs(root, sync, "first", 60);
        fs::create_dir(root.join("d")).unwrap();
        fs::create_dir(root.join("e")).unwrap();
        fs::write(root.join("e/placeholder"), "placeholder").unwrap();
        let others = ["gone", "reused", "moved", "rewritten"].map(str::to_owned);
        for name in (0..KEPT_NAMES).map(|at| format!("kept{at}")).chain(others) {
            fs::write(root.join("d").join(&name), &name).unwrap();
        }
        fs::create_dir(root.join("d/below")).unwrap();
        fs::write(root.join("d/below/file"), "below").unwrap();
        fs::hard_link(root.join("d/kept0"), root.join("d/second")).unwrap();
        // Times of files may lie in the middle of a tick, the one of the commit is its start.
        wait_for_a_tick();
        sync();
    })?;
    // The commit of the old copy is not in the same tick of the clock.
    wait_for_a_tick();
    mounted(&|root, sync| {
        fs::remove_file(root.join("d/reused")).unwrap();
        fs::write(root.join("e/new"), "new").unwrap();
        fs::remove_file(root.join("d/gone")).unwrap();
        fs::rename(root.join("d/moved"), root.join("e/other")).unwrap();
        fs::write(root.join("d/rewritten"), "rewritten later").unwrap();
        sync();
    })?;
    mounted(&|root, sync| make_dirs(root, sync, "last", 20))?;
    Ok(image)
}

/// A directory's block that is lost, with a copy that may be older: its names lead to files that
/// have no other, and that are as they were. A name that was removed does not come back.
#[test]
fn names_of_an_old_copy_are_restored_where_nothing_newer_contradicts() {
    let image = match with_old_names() {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    lose_blocks(&image.path(), &["d", "e"]);

    let of_names = |findings: &[HandledFinding], is_repaired: bool| -> BTreeSet<String> {
        let meant = findings.iter().filter(|it| it.finding.code == Code::OlderName);
        assert!(meant.clone().all(|it| it.repaired == is_repaired), "{findings:?}");
        meant.map(|it| it.finding.to_string()).collect()
    };
    let preened = copied(&image.path()).unwrap();
    let options_of_run = RunOptions { open: open_options(), force: true, ..Default::default() };
    let opened = common::open(&preened.path(), true);
    let report = run(&opened, &options_of_run, &AutoPolicy::Preen, &Quiet).unwrap();
    assert_eq!(report.end, End::Stopped);
    assert!(!report.findings.iter().any(|it| it.finding.code == Code::OlderName));

    let before = fs::read(image.path()).unwrap();
    let opened = common::open(&image.path(), false);
    let scanned = run(&opened, &options_of_run, &AutoPolicy::No, &Quiet).unwrap();
    assert!(fs::read(image.path()).unwrap() == before, "-n wrote");
    let report = fsck(&image.path(), &options(), AutoPolicy::Yes).unwrap();
    e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{said}\n{}", findings(&report)));
    let names = of_names(&report.findings, true);
    assert_eq!(names, of_names(&scanned.findings, false), "{}", findings(&report));
    assert_eq!(names.len(), KEPT_NAMES + 4, "{}", findings(&report));

    let mount = LoopMount::new(&image.path(), "ro").unwrap();
    let read = |name: &str| fs::read_to_string(mount.path().join(name)).ok();
    for name in (0..KEPT_NAMES).map(|at| format!("kept{at}")).chain(["moved".to_owned()]) {
        assert_eq!(read(&format!("d/{name}")), Some(name));
    }
    assert_eq!(read("d/second").as_deref(), Some("kept0"));
    assert_eq!(read("d/below/file").as_deref(), Some("below"));
    assert_eq!(read("e/placeholder").as_deref(), Some("placeholder"));
    for name in ["d/gone", "d/reused", "d/rewritten", "e/new", "e/other"] {
        assert_eq!(read(name), None, "{name}");
    }
    let lost = fs::read_dir(mount.path().join("lost+found")).unwrap();
    let mut lost: Vec<_> =
        lost.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    lost.sort();
    assert_eq!(lost, ["new", "rewritten later"]);
}
