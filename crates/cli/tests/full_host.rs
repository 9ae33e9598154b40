//! A sparse image on a file system that becomes full: contents that cannot be written leave the
//! old ones.

mod common;

use common::extant;
use extant_testkit::{Scratch, e2fsck_fn, is_root, skip, tool};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes that are free when the command begins: less than the new contents.
const FREE: u64 = 300 << 10;

/// A small file system in memory.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16M", "none"]).arg(&at);
        let is_mounted = mount.status().is_ok_and(|status| status.success());
        is_mounted.then_some(Self(at))
    }

    /// Leaves `FREE` bytes.
    fn fill(&self) {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        let free = found.f_bavail * found.f_frsize;
        std::fs::write(self.0.join("fill"), vec![1; (free - FREE) as usize]).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Contents without zeros, which would become holes.
fn contents(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(seed) >> 7) as u8 | 1).collect()
}

fn run(kind: &str, scratch: &Scratch, command: &[&str]) -> bool {
    let [image, new, old] = ["tmpfs/disk.img", "new", "tree/b"].map(|name| scratch.join(name));
    let Some(tmpfs) = Tmpfs::new(scratch.join("tmpfs")) else { return false };
    std::fs::create_dir(scratch.join("tree")).unwrap();
    std::fs::write(&old, contents(77, 3_000_000)).unwrap();
    std::fs::write(&new, contents(99, 2_500_000)).unwrap();
    let tree = scratch.join("tree");
    let [image, tree] = [&image, &tree].map(|path| path.to_str().unwrap());
    let made =
        extant(["mkfs", "-q", "-t", kind, "-E", "lazy_journal_init=0", "-d", tree, image, "64M"]);
    assert!(made.status.success(), "{made:?}");
    // Of all that is written only the contents lack room.
    let file = File::options().write(true).open(image).unwrap();
    for (offset, len) in [(16 << 20, 5 << 20), (0, 2 << 20)] {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, offset, len).unwrap();
    }
    tmpfs.fill();
    let words = command.iter().map(|word| word.replace("IMAGE", image));
    let words = words.map(|word| word.replace("NEW", new.to_str().unwrap())).collect::<Vec<_>>();
    let output = extant(&words);
    assert_eq!(output.status.code(), Some(1), "{kind} {command:?}: {output:?}");
    let shown = extant(["cat", &format!("{image}:/b")]);
    assert!(shown.stdout == contents(77, 3_000_000), "{kind} {command:?}: the old contents stay");
    let created = extant(["cat", &format!("{image}:/created")]);
    let is_whole = created.stdout == contents(99, 2_500_000);
    assert!(!created.status.success() || is_whole || kind == "ext2", "{kind} {command:?}");
    if kind != "ext2" && tool("e2fsck").is_some() {
        let copy = scratch.join("copy.img");
        copied(Path::new(image), &copy);
        let replayed = tool("e2fsck").unwrap().run(["-p", copy.to_str().unwrap()]);
        assert!(replayed.status.code().is_some_and(|code| code <= 1), "{replayed:?}");
        e2fsck_fn(&copy).unwrap_or_else(|found| panic!("{kind} {command:?}: {found}"));
    }
    true
}

fn copied(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("--sparse=always").args([from, to]).status().unwrap();
    assert!(status.success());
}

#[test]
fn contents_that_cannot_be_written_leave_what_was_there() {
    if !is_root() {
        skip!("a mount of tmpfs needs root");
    }
    for kind in ["ext4", "ext3", "ext2"] {
        for command in [
            &["cp", "NEW", "IMAGE:/b"][..],
            &["cp", "NEW", "IMAGE:/created"],
            &["debugfs", "-w", "-R", "write NEW created", "IMAGE"],
        ] {
            if !run(kind, &Scratch::new(), command) {
                skip!("no tmpfs here");
            }
        }
    }
}
