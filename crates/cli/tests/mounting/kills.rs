//! The server killed at any moment while programs of others work on the volume: what was fsynced is
//! there.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use extant_testkit::{LoopMount, Scratch, e2fsck_fn, is_root, mke2fs, skip, tool, tree};
use rustix::fs::{Advice, OFlags, SeekFrom};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::program::program;
use super::programs::missing;
use super::{LIMIT, Mount, can_mount, extant, image, until};

/// Work on the volume during the test: its name, what it needs, and its script, in a
/// directory of its own. $2 is a tree, and the program's path is $4 where it may be outside PATH.
const WORKS: [(&str, &[&str], &str); 11] = [
    ("cp and rm", &["cp"], "while cp -a \"$2\" copy && rm -rf copy; do :; done"),
    ("tar", &["tar"], "while tar -C \"$2\" -cf a.tar --exclude=socket . && mkdir copy && tar -C copy -xf a.tar && rm -rf copy; do :; done"),
    ("rsync", &["rsync"], "while rsync -aHAX \"$2\"/ copy/ && rm -rf copy; do :; done"),
    (
        "git",
        &["git"],
        "export HOME=$PWD; git init -q . && git config user.email a@example.org && git config user.name a
         for n in $(seq 1000); do seq $n $((n * 30)) > f$((n % 7)) && git add f* && git commit -qm $n; done",
    ),
    (
        "a build",
        &["cc", "ar"],
        "while :; do for n in $(seq 9); do echo \"int f$n(void) { return $n; }\" > f$n.c && cc -c f$n.c; done; ar rcs lib.a f*.o; rm -f f* lib.a; done",
    ),
    (
        "sqlite",
        &["sqlite3"],
        "sqlite3 db 'CREATE TABLE t(n)'; for n in $(seq 10000); do sqlite3 db \"INSERT INTO t VALUES($n)\" || break; done",
    ),
    ("fsx", &["fsx"], "for seed in $(seq 1000); do \"$4\" -N 300 -S $seed file || break; done"),
    (
        "fsx without mappings",
        &["fsx"],
        "printf '[weights]\\nmapread = 0\\nmapwrite = 0\\ninvalidate = 0\\n' > config
         for seed in $(seq 1000); do \"$4\" -f config -N 300 -S $seed file || break; done",
    ),
    (
        "fio",
        &["fio"],
        "while \"$4\" --name=it --rw=randwrite --bs=4k --size=4m --fsync=32 --verify=crc32c --do_verify=1; do :; done",
    ),
    (
        "stress-ng",
        &["stress-ng"],
        "\"$4\" --temp-path . --dentry 1 --rename 1 --hdd 1 --hdd-bytes 4m --timeout 4",
    ),
    (
        "pgbench",
        &["setpriv"],
        "bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1) && chown 65534 . && as() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }
         as \"$bin\"/initdb -D db -A trust -U us && as \"$bin\"/postgres -D db -h '' -k \"$PWD\"",
    ),
];

/// Each line goes to the host only after its file was fsynced on the mount. Paths start in the
/// mount, not where it was mounted: once it is gone nothing lies there. The work ends by itself:
/// some goes on without its volume.
const FSYNCS: &str = "cd \"$1\" && mkdir -p r$3/busy || exit 1
    (cd r$3/busy && exec timeout -k 1 5 bash -c \"$5\" work \"$@\") > /dev/null 2>&1 &
    for n in $(seq 100000); do
      echo line $n > r$3/f$n && sync r$3/f$n && echo $n || exit 0
    done 2> /dev/null";

#[test]
fn a_server_killed_at_any_moment_of_work_keeps_what_was_fsynced() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "256M");
    let source = scratch.join("source");
    tree::grow(&source, 5, &tree::Options::default()).expect("a tree");
    // By another seed the servers are killed after other times.
    let seed = std::env::var("EXTANT_SEED").ok().and_then(|text| text.parse().ok());
    let mut random = seed.map(tree::Random::new);
    let (mut missed, mut kills, mut kept) = (Vec::new(), 0, 0);
    for (round, (what, needs, work)) in (0u64..).zip(WORKS) {
        let own = program(needs[0]);
        if let Some(needed) = missing(needs).filter(|_| own.is_none()) {
            missed.push(format!("{what}: no {needed}"));
            continue;
        }
        let mount = Mount::new(&scratch, &image, &[]);
        let point = mount.path().to_owned();
        let acknowledged = scratch.join(format!("acknowledged{round}"));
        let mut worker = Command::new("bash")
            .args(["-c", FSYNCS, "work"])
            .args([&point, &source])
            .arg(round.to_string())
            .arg(own.unwrap_or_default())
            .arg(work)
            .stdout(fs::File::create(&acknowledged).expect("create"))
            .stderr(Stdio::null())
            .spawn()
            .expect("bash runs");
        let len = || fs::metadata(&acknowledged).expect("it is there").len();
        until("what was fsynced", || len() > 0);
        let wait = random.as_mut().map_or(300 + 97 * round, |random| random.below(2000));
        thread::sleep(Duration::from_millis(wait));
        mount.kill_server();
        kills += 1;
        // Its calls fail from now on; one that waits for ever is seen here, and not by the end of
        // the whole run's time.
        until(&format!("the end of the worker of {what}"), || {
            are_all_in_state(&worker.id().to_string(), 'Z')
        });
        worker.wait().expect("the worker ends");
        // Elsewhere: what is left of the work may know where it was.
        let after = Scratch::new();
        let again = Mount::new(&after, &image, &[]);
        let lines = fs::read_to_string(&acknowledged).expect("readable");
        for line in lines.lines() {
            let found = fs::read_to_string(again.path().join(format!("r{round}/f{line}")));
            assert_eq!(found.expect("fsynced"), format!("line {line}\n"), "{what}");
            kept += 1;
        }
        if what == "sqlite" {
            assert_database_is_whole(&again.path().join(format!("r{round}/busy/db")));
        }
        let _ = fs::remove_dir_all(again.path().join(format!("r{round}")));
        again.unmount();
        e2fsck_fn(&image).unwrap_or_else(|said| panic!("{what}: {said}"));
    }
    LoopMount::new(&image, "ro").expect("the kernel mounts it");
    println!("soak: kills={kills} fsynced={kept}");
    if !missed.is_empty() {
        skip!("{}", missed.join(", "));
    }
}

fn assert_database_is_whole(database: &Path) {
    if !database.exists() {
        // Killed before it was made durable.
        return;
    }
    let sqlite = tool("sqlite3").expect("it was there");
    let mut checked = Command::new("timeout");
    checked.args(["-k", "5", LIMIT]).arg(sqlite.path()).arg(database);
    let checked = checked.arg("PRAGMA integrity_check").output();
    let checked = checked.expect("sqlite3 runs");
    let said = [checked.stdout, checked.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said).trim(), "ok");
}

/// A server that is stopped; it goes on when this is dropped, and a mount whose server depends on
/// it is taken away before.
struct Stopped<'a> {
    server: &'a str,
    above: &'a Path,
}

impl<'a> Stopped<'a> {
    fn new(server: &'a str, above: &'a Path) -> Self {
        signal("-STOP", server);
        // Its threads may answer until the first of them has taken the signal.
        until("the stop", || are_all_in_state(server, 'T'));
        Self { server, above }
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // There only where the test has failed.
        if extant::rooms::mount::mount_at(self.above).is_ok_and(|entry| entry.is_some()) {
            let _ = Command::new("umount").arg("-f").arg(self.above).status();
        }
        signal("-CONT", self.server);
    }
}

fn signal(signal: &str, process: &str) {
    let status = Command::new("kill").args([signal, process]).status();
    assert!(status.expect("kill runs").success(), "{signal} {process}");
}

/// The kernel's line for each thread of a process: "12 (name) D ...", where D is its state.
fn threads_of(process: &str) -> Vec<String> {
    let tasks = fs::read_dir(Path::new("/proc").join(process).join("task")).expect("it runs");
    tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("stat")).ok()).collect()
}

pub(super) fn are_all_in_state(process: &str, state: char) -> bool {
    threads_of(process).iter().all(|thread| thread.contains(&format!(") {state} ")))
}

/// Whether a thread of that name waits in the kernel for what it cannot be called away from.
fn is_inside_the_kernel(process: &str, name: &str) -> bool {
    threads_of(process).iter().any(|thread| thread.contains(&format!("({name}) D ")))
}

/// One thread of the server has the kernel drop what it keeps of a file and waits there for a read
/// of that file, which the other threads, killed, answer no more: the process outside sees to it
/// that all come to an end.
#[test]
fn a_server_that_is_killed_while_a_thread_is_in_the_kernel_ends_and_its_mount() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let of_a_thread = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
    if pidfd_open(getpid(), of_a_thread).is_err() {
        skip!("this kernel does not tell of the end of a thread");
    }
    let (scratch, above) = (Scratch::new(), Scratch::new());
    let image = image(&scratch, &["-t", "ext4"], "96M");
    let below = Mount::new(&scratch, &image, &[]);
    // On the other mount, so that reading takes as long as that one is stopped.
    let inner = below.path().join("disk.img");
    mke2fs(["-q", "-F", "-t", "ext4", inner.to_str().expect("a plain path"), "16M"])
        .expect("mke2fs");
    let mount = Mount::new(&above, &inner, &[]);
    fs::write(mount.path().join("file"), vec![7; 1 << 16]).expect("write");
    mount.unmount();
    // Requests of a ring are handled by the thread of its processor alone.
    let mount = Mount::new(&above, &inner, &["-o", "noio_uring"]);
    let file = fs::File::options().read(true).write(true).open(mount.path().join("file"));
    let file = file.expect("open");
    let (server, server_below) = (mount.server(), below.server());
    // The page cache of the image would be read otherwise.
    let kept = fs::File::open(&inner).expect("open");
    kept.sync_all().expect("fsync");
    rustix::fs::fadvise(&kept, 0, None, Advice::DontNeed).expect("dropped");
    drop(kept);
    let stopped = Stopped::new(&server_below, mount.path());
    let for_read = file.try_clone().expect("a descriptor");
    let read = thread::spawn(move || for_read.read_at(&mut [0; 16], 0));
    until("the read", || is_inside_the_kernel(&server, "fuse"));
    let sought = thread::spawn(move || rustix::fs::seek(&file, SeekFrom::Data(0)));
    until("the notice", || is_inside_the_kernel(&server, "fuse-seek"));
    signal("-KILL", &server);
    let is_mounted = || extant::rooms::mount::mount_at(mount.path()).expect("the table").is_some();
    until("the end of the mount", || !is_mounted());
    let outcomes = (read.join().expect("no panic"), sought.join().expect("no panic"));
    assert!(outcomes.0.is_err() && outcomes.1.is_err(), "{outcomes:?}");
    drop(stopped);
    until("the end of the server", || !Path::new("/proc").join(&server).exists());
    let again = Mount::new(&above, &inner, &[]);
    assert_eq!(fs::read(again.path().join("file")).expect("there"), vec![7; 1 << 16]);
    again.unmount();
    e2fsck_fn(&inner).expect("healthy");
    below.unmount();
}

/// umount(8) returns before the server has closed the volume: the next mount waits for that.
#[test]
fn commands_wait_for_a_server_that_still_closes_the_volume() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if !is_root() {
        skip!("umount(8) is root's");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "96M");
    for round in 0..8_u8 {
        let mount = Mount::new(&scratch, &image, &[]);
        fs::write(mount.path().join(format!("f{round}")), vec![round; 4 << 20]).expect("room");
        until("the end of the mount", || {
            let status = Command::new("umount").arg(mount.path()).status();
            status.is_ok_and(|status| status.success())
        });
    }
    for words in [&["fsck", "-fy"][..], &["tune", "-L", "label"], &["fsck", "--wait", "-fn"]] {
        let mount = Mount::new(&scratch, &image, &[]);
        fs::write(mount.path().join("more"), vec![7; 4 << 20]).expect("room");
        until("the end of the mount", || {
            let status = Command::new("umount").arg(mount.path()).status();
            status.is_ok_and(|status| status.success())
        });
        let (code, said) = extant(words, &[&image]);
        assert_eq!(code, 0, "{words:?}: {said}");
    }
    // The helper of umount(8), as it calls it.
    let helper = scratch.join("umount.fuse.extant");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &helper).expect("a link");
    for words in [&["-t", "fuse.extant"][..], &["-n", "-v"], &["-f", "-l"]] {
        let mount = Mount::new(&scratch, &image, &[]);
        fs::write(mount.path().join("more"), vec![8; 4 << 20]).expect("room");
        let output = Command::new(&helper).arg(mount.path()).args(words).output().expect("it runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
        if !words.contains(&"-f") {
            e2fsck_fn(&image).expect("closed, and healthy");
        }
    }
    let output = Command::new(&helper).arg(scratch.path()).arg("-r").output().expect("it runs");
    assert!(!output.status.success(), "{output:?}");
    let again = Mount::new(&scratch, &image, &[]);
    let (code, said) = extant(&["fsck", "-n"], &[&image]);
    let warning = format!("Warning!  {} is mounted.", image.display());
    assert!(code == 0 && said.contains(&warning), "{code}: {said}");
    for round in 0..8_u8 {
        let found = fs::read(again.path().join(format!("f{round}"))).expect("there");
        assert_eq!(found, vec![round; 4 << 20]);
    }
    again.unmount();
    e2fsck_fn(&image).expect("healthy");
}
