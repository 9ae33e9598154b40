//! The mount whose requests come by io_uring.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io, thread};

use extant_testkit::{LoopMount, Scratch, TreeSnapshot, assert_same_tree, e2fsck_fn, skip};
use rustix::fs::SeekFrom;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use super::{Mount, can_mount, image};

/// Whether FUSE has io_uring, a matter of the whole system.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Switches it on, and back when dropped. Another test waits until then.
struct Switched {
    before: String,
    _alone: MutexGuard<'static, ()>,
}

impl Switched {
    fn on() -> Result<Self, String> {
        can_mount()?;
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fs::read_to_string(SWITCH).map_err(|_| "FUSE has no io_uring here")?;
        fs::write(SWITCH, "Y").map_err(|error| error.to_string())?;
        Ok(Self { before, _alone: alone })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.before.trim());
    }
}

/// Whether requests come by rings: on a machine with much other work the threads for that are there
/// a moment later than the mount.
fn has_rings(mount: &Mount) -> bool {
    (0..200).any(|_| {
        let is_there = !threads(&mount.server(), "fuse-ring").is_empty();
        if !is_there {
            thread::sleep(Duration::from_millis(10));
        }
        is_there
    })
}

/// Threads of that name in a process.
fn threads(process: &str, name: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(Path::new("/proc").join(process).join("task")).expect("it runs");
    let is_named = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let number = |task: fs::DirEntry| Pid::from_raw(task.file_name().to_str()?.parse().ok()?);
    tasks.flatten().filter(is_named).filter_map(number).collect()
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
    let switched = match Switched::on() {
        Ok(switched) => switched,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "128M");
    let mount = Mount::new(&scratch, &image, &["-o", "noio_uring"]);
    assert!(threads(&mount.server(), "fuse-ring").is_empty());
    mount.unmount();
    let mount = Mount::new(&scratch, &image, &[]);
    if !has_rings(&mount) {
        skip!("no rings can be made here");
    }
    let mut work = Command::new("timeout");
    let work = work.args(["-k", "5", "120", "bash", "-c", WORK]).current_dir(mount.path());
    let output = work.output().expect("bash runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Another thread asks for data that only the kernel's cache has.
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
    Mount::new(&scratch, &image, &["-o", "io_uring"]).kill_server();
    Mount::new(&scratch, &image, &["-o", "io_uring"]).terminate_server();
    e2fsck_fn(&image).expect("healthy");
    drop(switched);
}

/// Threads that look for holes at once, several times as many as a queue has slots, and how often
/// each does.
const SEEKERS: usize = 64;
const ROUNDS: usize = 10;
/// A hole, then data, of that many bytes each.
const PART: u64 = 64 << 10;

/// Where data and the hole at the end are found in a file whose data the kernel's cache has.
fn data_and_end(file: &fs::File) -> io::Result<(u64, u64)> {
    file.write_all_at(&[7; PART as usize], PART)?;
    Ok((rustix::fs::seek(file, SeekFrom::Data(0))?, rustix::fs::seek(file, SeekFrom::Hole(PART))?))
}

/// A request for holes waits until the kernel has written what it keeps of the file, which it does
/// by the queue of the same processor: if waiting requests took all slots there, no thread would
/// go on.
#[test]
fn looking_for_holes_does_not_keep_the_kernels_writes_out() {
    let switched = match Switched::on() {
        Ok(switched) => switched,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "128M");
    let mount = Mount::new(&scratch, &image, &["-o", "io_uring"]);
    if !has_rings(&mount) {
        skip!("no rings can be made here");
    }
    // All on one processor, and who has the kernel write there too.
    let ours = sched_getaffinity(None).expect("ours");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| ours.is_set(*cpu)).expect("we run on one");
    let mut one = CpuSet::new();
    one.set(first);
    for thread in threads(&mount.server(), "fuse-seek") {
        sched_setaffinity(Some(thread), &one).expect("it is there");
    }
    let (answers, answered) = channel();
    let together = Arc::new(Barrier::new(SEEKERS));
    for number in 0..SEEKERS {
        let (answers, together) = (answers.clone(), together.clone());
        let path = mount.path().join(number.to_string());
        thread::spawn(move || {
            sched_setaffinity(None, &one).expect("ours");
            let file = fs::File::create(path).expect("create");
            together.wait();
            for _ in 0..ROUNDS {
                answers.send(data_and_end(&file)).expect("a caller waits");
            }
        });
    }
    drop(answers);
    let mut count = 0;
    loop {
        match answered.recv_timeout(Duration::from_secs(60)) {
            Ok(found) => {
                let (data, end) = found.expect("no error");
                // Without holes, where too many looked for them.
                assert!(data == PART || data == 0, "data at {data}");
                assert_eq!(end, 2 * PART);
                count += 1;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                mount.kill_server();
                panic!("after {count} answers no caller got one any more");
            }
        }
    }
    assert_eq!(count, SEEKERS * ROUNDS);
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    drop(switched);
}
