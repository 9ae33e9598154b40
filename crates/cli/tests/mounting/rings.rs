//! The mount whose requests come by io_uring.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use extant_testkit::{LoopMount, Scratch, TreeSnapshot, assert_same_tree, e2fsck_fn, skip};
use rustix::fs::SeekFrom;

use super::{Mount, can_mount, image};

/// Whether FUSE has io_uring, a matter of the whole system.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Switches it on, and back when dropped.
struct Switched(String);

impl Switched {
    fn on() -> Result<Self, String> {
        let before = fs::read_to_string(SWITCH).map_err(|_| "FUSE has no io_uring here")?;
        fs::write(SWITCH, "Y").map_err(|error| error.to_string())?;
        Ok(Self(before))
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.0.trim());
    }
}

/// Threads of that name in a process.
fn threads(process: &str, name: &str) -> usize {
    let tasks = fs::read_dir(Path::new("/proc").join(process).join("task")).expect("it runs");
    let names =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

/// Several programs at once, small files and large ones, and a volume that becomes full.
const WORK: &str = "set -eu
    for job in 1 2 3 4; do
        (mkdir $job; for n in $(seq 200); do echo $job $n > $job/$n; done
        mv $job/1 $job/moved; ln $job/2 $job/link; ln -s 3 $job/symlink; rm $job/4; ls -l $job > /dev/null) &
        jobs=\"${jobs-} $!\"
    done
    for job in $jobs; do wait $job; done
    dd if=/dev/urandom of=large bs=1M count=24 conv=fsync status=none
    cp large copy; cmp large copy; dd if=large of=direct bs=1M oflag=direct status=none; cmp large direct
    ! dd if=/dev/zero of=full bs=1M count=150 conv=fsync status=none 2> /dev/null
    rm full copy; cp large again; cmp large again; setfattr -n user.name -v value large
    [ $(getfattr --only-values -n user.name large) = value ]";

#[test]
fn requests_that_come_by_rings_are_answered_as_those_that_are_read() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let switched = match Switched::on() {
        Ok(switched) => switched,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "128M");
    let mount = Mount::new(&scratch, &image, &[]);
    assert_eq!(threads(&mount.server(), "fuse-ring"), 0);
    mount.unmount();
    let mount = Mount::new(&scratch, &image, &["-o", "io_uring"]);
    if threads(&mount.server(), "fuse-ring") == 0 {
        skip!("no rings can be made here");
    }
    let mut work = Command::new("timeout");
    let work = work.args(["-k", "5", "120", "bash", "-c", WORK]).current_dir(mount.path());
    let output = work.output().expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // What the kernel's cache alone knows is asked for by another thread.
    let file = fs::File::create(mount.path().join("holes")).expect("create");
    file.write_all_at(b"data", 1 << 20).expect("write");
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(0));
    drop(file);
    let ours = TreeSnapshot::of_dir(mount.path()).expect("readable");
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    assert_same_tree(&TreeSnapshot::of_dir(kernel.path()).expect("readable"), &ours);
    drop(kernel);
    // Killed in the middle, and a signal: both end the mount.
    Mount::new(&scratch, &image, &[]).kill_server();
    Mount::new(&scratch, &image, &[]).terminate_server();
    e2fsck_fn(&image).expect("healthy");
    drop(switched);
}
