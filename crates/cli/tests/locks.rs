//! Locks of other programs: an ancestor's is ours, a stranger's is named and waited for.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{EXTANT, extant, quiet, text};
use extant_testkit::{LoopMount, Scratch, debugfs, e2fsck_fn, is_root, skip, tool};

fn formatted(scratch: &Scratch) -> String {
    let image = scratch.join("disk.img").to_str().unwrap().to_owned();
    quiet(&extant(["mkfs", "-q", "-t", "ext4", &image, "16M"]));
    image
}

/// A process that has locked a file and is no ancestor of what the test runs.
struct Stranger(Child);

impl Stranger {
    /// `flock -F` becomes the program itself, so that the lock is of the process that we know.
    fn locks(path: &str, kind: &str, program: &str) -> Self {
        let mut child = Command::new("flock")
            .args([kind, "-F", path, "sh", "-c", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self(child)
    }

    fn lets_go(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

const UNTIL_TOLD: &str = "echo locked; read -r line";

fn shell(script: &str) -> Output {
    Command::new("sh").args(["-c", script]).output().unwrap()
}

/// systemd-repart, `udevadm lock` and `flock` hold LOCK_EX around the command.
#[test]
fn a_lock_of_an_ancestor_is_ours() {
    if tool("flock").is_none() {
        skip!("flock is not installed");
    }
    let scratch = Scratch::new();
    let image = formatted(&scratch);
    let under = [
        format!("flock {image} "),
        format!("flock -o {image} "),
        format!("flock -F {image} "),
        format!("exec 9>>{image}; flock 9; "),
        format!("flock -s {image} "),
        format!("exec 9<{image}; flock -s 9; "),
    ];
    for (at, lock) in under.iter().enumerate() {
        let commands = [
            format!("{EXTANT} mkdir {image}:/dir{at}"),
            format!("{EXTANT} tune -L label{at} {image}"),
            format!("{EXTANT} fsck -fy {image} > /dev/null"),
        ];
        for command in commands {
            quiet(&shell(&format!("{lock}{command}")));
        }
        assert!(debugfs(Path::new(&image), "ls -p /").unwrap().contains(&format!("dir{at}/")));
        quiet(&shell(&format!("{lock}{EXTANT} mkfs -q -F {image}")));
        e2fsck_fn(Path::new(&image)).unwrap();
    }
    let stranger = Stranger::locks(&image, "-s", UNTIL_TOLD);
    let refused = shell(&format!("flock -s {image} {EXTANT} tune -L taken {image}"));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    stranger.lets_go();
}

#[test]
fn commands_under_one_lock_exclude_each_other() {
    let scratch = Scratch::new();
    let image = formatted(&scratch);
    let ours = File::open(&image).unwrap();
    rustix::fs::flock(&ours, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    quiet(&extant(["tune", "-L", "free", &image]));
    let writer = extant::rooms::device::FileDeviceOptions::new().write(true).open(&image).unwrap();
    let refused = extant(["tune", "-L", "taken", &image]);
    assert_eq!(refused.status.code(), Some(1));
    let named = format!("(process {})", std::process::id());
    assert!(text(&refused.stderr).contains(&named), "{refused:?}");
    drop(writer);
    quiet(&extant(["tune", "-L", "again", &image]));
}

#[test]
fn debugfs_names_a_locked_image_once() {
    if tool("flock").is_none() {
        skip!("flock is not installed");
    }
    let scratch = Scratch::new();
    let image = formatted(&scratch);
    let before = std::fs::read(&image).unwrap();
    let stranger = Stranger::locks(&image, "-x", UNTIL_TOLD);
    let refused = extant(["debugfs", "-w", "-R", "mkdir dir", &image]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = format!("debugfs: {image}: in use: locked by sh (process {})", stranger.0.id());
    assert_eq!(text(&refused.stderr).lines().next(), Some(&*said));
    assert!(std::fs::read(&image).unwrap() == before);
    stranger.lets_go();
}

#[test]
fn a_strangers_lock_is_named_and_waited_for() {
    if tool("flock").is_none() {
        skip!("flock is not installed");
    }
    let scratch = Scratch::new();
    let image = formatted(&scratch);
    let inside = format!("{image}:/dir");
    let undo = scratch.join("undo");
    let undo = undo.to_str().unwrap();
    quiet(&extant(["tune", "-L", "old", "-z", undo, &image]));
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let tree = tree.to_str().unwrap();
    let commands: [(&[&str], i32); 7] = [
        (&["undo", undo, &image], 1),
        (&["mkdir", &inside], 1),
        (&["tune", "-L", "new", &image], 1),
        (&["fsck", "-fy", &image], 8),
        (&["build", "-q", "-o", &image, tree], 1),
        (&["mkfs", "-q", "-F", "-d", tree, &image], 1),
        (&["mkfs", "-q", "-F", &image], 1),
    ];
    for (words, code) in commands {
        let with_wait = |wait: &'static str| [&words[..1], &[wait], &words[1..]].concat();
        for kind in ["-x", "-s"] {
            let stranger = Stranger::locks(&image, kind, UNTIL_TOLD);
            let before = std::fs::read(&image).unwrap();
            let refused = extant(with_wait("--wait=0"));
            assert_eq!(refused.status.code(), Some(code), "{words:?}: {refused:?}");
            let named = format!("in use: locked by sh (process {})", stranger.0.id());
            assert!(text(&refused.stderr).contains(&named), "{words:?}: {refused:?}");
            assert!(std::fs::read(&image).unwrap() == before, "{words:?}");
            if kind == "-x" {
                let words = with_wait("--wait");
                let waiting = Command::new(EXTANT).args(words).stdout(Stdio::null()).spawn();
                stranger.lets_go();
                let ended = waiting.unwrap().wait().unwrap();
                assert!(ended.code().is_some_and(|code| code <= 1), "{ended:?}");
                e2fsck_fn(Path::new(&image)).unwrap();
            } else {
                stranger.lets_go();
            }
        }
    }
    let refused = extant(["tune", "--wait=soon", "-L", "x", &image]);
    assert!(text(&refused.stderr).contains("invalid number of seconds 'soon'"), "{refused:?}");
}

/// A mount waits too, and the image is its own then.
#[test]
fn a_mount_waits_for_a_strangers_lock() {
    if !is_root() || tool("flock").is_none() || !Path::new("/dev/fuse").exists() {
        skip!("needs root, flock and /dev/fuse");
    }
    let scratch = Scratch::new();
    let image = formatted(&scratch);
    let point = scratch.join("mnt");
    std::fs::create_dir(&point).unwrap();
    let point = point.to_str().unwrap();
    let stranger = Stranger::locks(&image, "-x", UNTIL_TOLD);
    let refused = extant(["mount", "--wait=0", &image, point]);
    assert!(!refused.status.success());
    let named = format!("in use: locked by sh (process {})", stranger.0.id());
    assert!(text(&refused.stderr).contains(&named), "{refused:?}");
    let waiting = Command::new(EXTANT).args(["mount", "--wait", &image, point]).spawn().unwrap();
    stranger.lets_go();
    let mounted = waiting.wait_with_output().unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    let refused = extant(["tune", "-L", "x", &image]);
    assert!(text(&refused.stderr).contains("locked by extant (process "), "{refused:?}");
    quiet(&extant(["umount", point]));
    quiet(&extant(["tune", "--wait", "-L", "x", &image]));
}

struct Loop(String);

impl Loop {
    fn over(image: &str) -> Result<Self, String> {
        let made = Command::new("losetup").args(["-f", "--show", image]).output();
        let made = made.map_err(|error| error.to_string())?;
        match made.status.success() {
            true => Ok(Self(text(&made.stdout).trim().to_owned())),
            false => Err(text(&made.stderr)),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// udev locks a device while it probes it, shared, when it was just written.
#[test]
fn a_device_that_is_being_probed_is_waited_for() {
    if !is_root() || tool("flock").is_none() {
        skip!("needs root and flock");
    }
    let scratch = Scratch::new();
    let image = formatted(&scratch);
    let device = match Loop::over(&image) {
        Ok(device) => device,
        Err(why) => skip!("no loop device here: {why}"),
    };
    let prober = Stranger::locks(&device.0, "-s", "echo locked; sleep 0.2");
    quiet(&extant(["tune", "-L", "probed", &device.0]));
    prober.lets_go();
    quiet(&shell(&format!("flock {0} {EXTANT} mkfs -q -F {0}", device.0)));
}

#[test]
fn what_the_kernel_has_mounted_is_formatted_by_nobody_unless_forced_twice() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let image = formatted(&scratch);
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let mount = match LoopMount::new(Path::new(&image), "") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    std::fs::write(mount.path().join("kept"), "kept").unwrap();
    let place = mount.path().to_str().unwrap().to_owned();
    let source = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = source.lines().find(|line| line.contains(&format!(" {place} "))).unwrap();
    let device = line.split_once(" - ").unwrap().1.split(' ').nth(1).unwrap().to_owned();
    let tree = tree.to_str().unwrap();
    let lines: [&[&str]; 5] = [
        &["mkfs", "-q", "-F", &image],
        &["mkfs", "-q", "-F", "-d", tree, &image],
        &["build", "-q", "-F", "-o", &image, tree],
        &["mkfs", "-q", "-F", &device],
        &["mkfs", "-q", "-F", "-F", &device],
    ];
    for words in lines {
        let refused = extant(words);
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
        let named = format!("mounted on {place}");
        assert!(text(&refused.stderr).contains(&named), "{words:?}: {refused:?}");
    }
    mount.unmount().unwrap();
    e2fsck_fn(Path::new(&image)).unwrap();
    assert_eq!(debugfs(Path::new(&image), "cat /kept").unwrap(), "kept");

    // As mke2fs: a file twice forced is formatted, mounted or not; a loop device that is not
    // mounted is no reason to refuse.
    let mount = LoopMount::new(Path::new(&image), "ro").unwrap();
    quiet(&extant(["mkfs", "-q", "-F", "-F", &image]));
    mount.unmount().unwrap();
    let device = Loop::over(&image).unwrap();
    quiet(&extant(["mkfs", "-q", "-F", &image]));
    drop(device);
    e2fsck_fn(Path::new(&image)).unwrap();
}
