//! Mounts of block devices, which the kernel holds; and what of the sandbox can be seen from
//! outside.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use extant_testkit::{Scratch, e2fsck_fn, skip};

use super::{Mount, can_mount, extant, image};

/// A loop device, given back when dropped.
pub(super) struct LoopDevice(PathBuf);

impl LoopDevice {
    pub(super) fn of(image: &Path) -> Option<Self> {
        for _ in 0..10 {
            let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
            let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if output.status.success() && !name.is_empty() {
                return Some(Self(name.into()));
            }
            // Others take them too.
            thread::sleep(Duration::from_millis(200));
        }
        None
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// The kernel tells the server of a block device of syncfs, and waits for it when it unmounts.
#[test]
fn a_block_device_is_held_synced_and_closed_by_the_kernel() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let Some(device) = LoopDevice::of(&image) else { skip!("no free loop device") };
    let mount = Mount::new(&scratch, &device.0, &["-o", "commit=1000"]);
    let entry = extant::rooms::mount::mount_at(mount.path()).expect("the table").expect("mounted");
    if entry.fs_type != "fuseblk.extant" {
        skip!("this kernel has no fuseblk");
    }
    // No other process has it.
    let other = scratch.join("other");
    fs::create_dir(&other).expect("mkdir");
    assert_ne!(extant(&["mount"], &[&device.0, &other]).0, 0, "mounted twice");
    fs::write(mount.path().join("synced"), b"synced").expect("write");
    let root = fs::File::open(mount.path()).expect("open");
    rustix::fs::syncfs(&root).expect("syncfs");
    drop(root);
    mount.kill_server();
    let again = Mount::new(&scratch, &device.0, &[]);
    assert_eq!(fs::read(again.path().join("synced")).expect("synced"), b"synced");
    fs::write(again.path().join("last"), b"last").expect("write");
    // Not our own command: umount(8) waits as well.
    let status = Command::new("umount").arg(again.path()).status().expect("umount runs");
    assert!(status.success());
    e2fsck_fn(&device.0).expect("closed when umount returned");
    assert_eq!(extant(&["cat"], &[Path::new(&format!("{}:/last", device.0.display()))]).1, "last");
}

/// A process that reads an image can do nothing else any more.
#[test]
fn commands_that_read_images_are_restricted_before_they_do() {
    let scratch = Scratch::new();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    fs::write(tree.join("file"), vec![7; 1 << 20]).expect("write");
    let image = scratch.join("built.img");
    let (code, said) = extant(&["build", "-o"], &[&image, &tree]);
    assert_eq!(code, 0, "{said}");
    let inside = format!("{}:/file", image.display());
    for (words, restricted) in [
        (vec!["cat", &inside], true),
        (vec!["cat", "--no-sandbox", &inside], false),
        (vec!["export", &image.to_string_lossy()], true),
    ] {
        let mut reader = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(&words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("extant runs");
        let mut output = reader.stdout.take().expect("piped");
        // Its first byte has come, and the pipe holds less than the rest: it is at work.
        output.read_exact(&mut [0]).expect("a byte");
        let status = fs::read_to_string(format!("/proc/{}/status", reader.id())).expect("alive");
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect(name).trim().to_owned()
        };
        let expected = if restricted { "2" } else { "0" };
        assert_eq!(value("Seccomp:"), expected, "{words:?}");
        assert_eq!(
            value("CapEff:") == "0000000000000000",
            restricted || !extant_testkit::is_root()
        );
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).expect("the rest");
        assert!(reader.wait().expect("it ends").success(), "{words:?}");
    }
}
