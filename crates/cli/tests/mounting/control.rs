//! Mounted volumes that are shut down, frozen, and let go on.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use extant_testkit::{LoopMount, Scratch, dumpe2fs_h, e2fsck_fn, skip, tool};
use rustix::io::Errno;

use super::kills::are_all_in_state;
use super::{Mount, can_mount, extant, image, until};

/// Longer than any test: nothing is committed by age.
const LATE: [&str; 2] = ["-o", "commit=300"];

/// `FS_IOC_SHUTDOWN` with a mode.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[2], os.O_RDONLY), 0x8004587d, struct.pack('I', int(sys.argv[1])))";

fn is_errno<T>(done: io::Result<T>, errno: Errno) -> bool {
    done.is_err_and(|error| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Work before a volume is shut down: one file is synced, another one is only closed.
fn work(at: &Path) {
    let mut synced = fs::File::create(at.join("synced")).expect("create");
    synced.write_all(b"synced").expect("write");
    synced.sync_all().expect("fsync");
    fs::write(at.join("closed"), b"closed").expect("write");
}

/// Whether the journal is to be recovered, and whether the volume says that it is clean.
fn state(image: &Path) -> (bool, String) {
    let header = dumpe2fs_h(image).expect("dumpe2fs");
    let needs_recovery = header["Filesystem features"].contains("needs_recovery");
    (needs_recovery, header["Filesystem state"].clone())
}

/// State found by the next mount, the journal recovered.
fn found(at: &Path) -> [Option<Vec<u8>>; 2] {
    ["synced", "closed"].map(|name| fs::read(at.join(name)).ok())
}

#[test]
fn a_program_mounts_freezes_and_unmounts_by_the_library() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let point = scratch.join("point");
    fs::create_dir(&point).expect("a mount point");
    let mounter = extant::Mounter::new(&image, &point).program(env!("CARGO_BIN_EXE_extant"));
    let missing = extant::Mounter::new(scratch.join("missing"), &point);
    let refused = missing.program(env!("CARGO_BIN_EXE_extant")).mount().expect_err("no image");
    assert!(refused.to_string().contains("missing"), "{refused}");

    let mount = mounter.options("noatime").mount().expect("it is mounted");
    work(mount.point());
    mount.freeze().expect("it is frozen");
    assert!(e2fsck_fn(&image).is_ok(), "a frozen image is whole");
    mount.thaw().expect("it goes on");
    fs::write(mount.point().join("later"), b"later").expect("write");
    assert_eq!(mount.grow(96 << 20).expect("it grows"), 96 << 20);
    assert_eq!(fs::metadata(&image).expect("the image").len(), 96 << 20);
    mount.unmount().expect("it is unmounted");
    e2fsck_fn(&image).expect("clean");
    let fs = extant::FileSystem::open_read_only(&image).expect("it is read");
    assert_eq!(fs.read("/later").expect("the file"), b"later");
}

#[test]
fn a_volume_is_shut_down_as_the_kernel_does_it() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(python) = tool("python3") else { skip!("no python3 here") };
    let modes = [("--default", "0"), ("--flush", "1"), ("--no-flush", "2"), ("ioctl", "2")];
    for (how, mode) in modes {
        let shut_down = |at: &Path| {
            let status = python.command().args(["-c", SHUT_DOWN, mode]).arg(at).status();
            assert!(status.expect("python runs").success(), "{how}");
        };
        let scratch = Scratch::new();
        let image = image(&scratch, &["-t", "ext4"], "64M");
        let kernels = scratch.join("kernels.img");
        fs::copy(&image, &kernels).expect("a copy");

        let mount = Mount::new(&scratch, &image, &LATE);
        work(mount.path());
        if how == "ioctl" {
            shut_down(mount.path());
        } else {
            assert_eq!(extant(&["shutdown", how], &[mount.path()]), (0, String::new()));
        }
        assert!(is_errno(fs::create_dir(mount.path().join("late")), Errno::IO), "{how}");
        assert!(is_errno(fs::read_dir(mount.path().join("lost+found")), Errno::IO), "{how}");
        assert!(is_errno(fs::metadata(mount.path().join("unknown")), Errno::IO), "{how}");
        assert!(is_errno(fs::write(mount.path().join("synced"), b"late"), Errno::IO), "{how}");
        let before = fs::read(&image).expect("the image");
        mount.unmount();
        assert!(fs::read(&image).expect("the image") == before, "{how}: written at the end");

        let kernel = LoopMount::new(&kernels, "commit=300").expect("the kernel mounts it");
        work(kernel.path());
        shut_down(kernel.path());
        drop(kernel);
        let (ours, theirs) = (state(&image), state(&kernels));
        assert_eq!(ours, theirs, "{how}");

        let again = Mount::new(&scratch, &image, &[]);
        let [synced, closed] = found(again.path());
        assert_eq!(synced.as_deref(), Some(&b"synced"[..]), "{how}");
        match how {
            "--default" => assert_eq!(closed.as_deref(), Some(&b"closed"[..])),
            // The name is committed; where its data go was not decided yet.
            "--flush" => assert!(closed.is_some()),
            _ => assert_eq!(closed, None, "{how}"),
        }
        again.unmount();
        e2fsck_fn(&image).expect(how);
    }
}

/// More programs wait than the server has threads, and it still hears that they may go on.
#[test]
fn a_frozen_volume_is_a_clean_image_and_programs_wait_until_it_thaws() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &["-o", "commit=300,threads=2,strictatime"]);
    let at = |name: &str| mount.path().join(name);
    fs::write(at("before"), vec![7; 100_000]).expect("write");
    let held = fs::File::create(at("removed")).expect("create");
    fs::remove_file(at("removed")).expect("unlink");
    drop(held);
    // The kernel holds a directory for who makes a name in it: others who read that one wait too.
    fs::create_dir(at("waiting")).expect("mkdir");
    assert_eq!(extant(&["freeze"], &[mount.path()]), (0, String::new()));
    let (code, said) = extant(&["freeze"], &[mount.path()]);
    let frozen =
        format!("extant freeze: {}: the volume is already frozen\n", mount.path().display());
    assert_eq!((code, said), (1, frozen));
    let frozen = fs::read(&image).expect("the image");
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..12 {
            let (done, at) = (&done, &at);
            scope.spawn(move || {
                fs::create_dir(at(&format!("waiting/{number}"))).expect("once it thaws");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        // Reading goes on, and what was read changes nothing.
        assert_eq!(fs::read(at("before")).expect("read").len(), 100_000);
        assert_eq!(fs::read_dir(mount.path()).expect("readable").count(), 3);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(done.load(Ordering::Relaxed), 0, "something was changed");
        assert!(fs::read(&image).expect("the image") == frozen, "something was written");
        let copy = scratch.join("copy.img");
        fs::write(&copy, &frozen).expect("write");
        e2fsck_fn(&copy).expect("a clean volume");
        assert!(!state(&copy).0, "there is nothing to recover");
        let kernel = LoopMount::new(&copy, "ro,noload").expect("the kernel mounts it");
        assert_eq!(fs::read(kernel.path().join("before")).expect("read"), vec![7; 100_000]);
        drop(kernel);
        assert_eq!(extant(&["thaw"], &[mount.path()]), (0, String::new()));
    });
    let (code, said) = extant(&["thaw"], &[mount.path()]);
    let thawed = format!("extant thaw: {}: the volume is not frozen\n", mount.path().display());
    assert_eq!((code, said), (1, thawed));
    assert_eq!(fs::read_dir(at("waiting")).expect("readable").count(), 12);
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// The kernel's dirty pages are written when a frozen volume is unmounted or its server is asked to
/// end, and nothing waits for ever.
#[test]
fn a_frozen_volume_thaws_at_its_end() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for is_signalled in [false, true] {
        let scratch = Scratch::new();
        let image = image(&scratch, &["-t", "ext4"], "64M");
        let mount = Mount::new(&scratch, &image, &[]);
        let path = mount.path().join("file");
        fs::write(&path, b"before").expect("write");
        assert_eq!(extant(&["freeze"], &[mount.path()]), (0, String::new()));
        // A process of its own: who starts a program while he has such a file open waits too, since
        // the program closes it.
        let mut writer = Command::new("dd")
            .args(["if=/dev/zero", "bs=10000", "count=1", "conv=notrunc,nocreat", "status=none"])
            .arg(format!("of={}", path.display()))
            .spawn()
            .expect("dd runs");
        let process = writer.id().to_string();
        until("the kernel has it, and waits to write it", || are_all_in_state(&process, 'D'));
        if is_signalled {
            mount.terminate_server();
        } else {
            mount.unmount();
        }
        assert!(writer.wait().expect("dd ends").success());
        e2fsck_fn(&image).expect("healthy");
        let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
        assert_eq!(fs::read(kernel.path().join("file")).expect("read"), [0; 10_000]);
    }
}

#[test]
fn volumes_are_frozen_and_shut_down_by_root_and_the_mounts_owner() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(setpriv) = tool("setpriv") else { skip!("no setpriv here") };
    let scratch = Scratch::new();
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(&*scratch, open).expect("chmod");
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    // Where others reach it.
    let program = scratch.join("extant");
    fs::copy(env!("CARGO_BIN_EXE_extant"), &program).expect("copy");
    for words in
        [&["freeze"][..], &["thaw"][..], &["shutdown"][..], &["shutdown", "--no-flush"][..]]
    {
        let mut command: Command = setpriv.command();
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        let output = command.args(words).arg(mount.path()).output().expect("setpriv runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Operation not permitted"), "{words:?}: {said}");
    }
    let (code, said) = extant(&["freeze"], &[&scratch]);
    assert!(code == 1 && said.contains("not an extant mount point"), "{said}");
    fs::write(mount.path().join("file"), b"it goes on").expect("write");
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// Once the name is gone the volume could not be thawed: what waits is written, and the server
/// ends. The writer is a process of its own, since a child of this one would have the file too, and
/// close it when it starts.
#[test]
fn a_frozen_volume_thaws_when_its_name_is_taken_away() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &LATE);
    let file = mount.path().join("file");
    fs::write(&file, b"").expect("create");
    assert_eq!(extant(&["freeze"], &[mount.path()]), (0, String::new()));
    let mut writer = Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "count=1", "conv=notrunc,fsync", "status=none"])
        .arg(format!("of={}", file.display()))
        .spawn()
        .expect("dd runs");
    thread::sleep(Duration::from_millis(300));
    let waits = writer.try_wait().expect("its state").is_none();
    let unmounted = extant(&["umount", "-l"], &[mount.path()]);
    if unmounted.0 != 0 {
        mount.terminate_server();
    }
    let written = writer.wait().expect("it ends");
    assert_eq!(unmounted, (0, String::new()));
    assert!(waits && written.success(), "{waits} {written}");
    until("the server's end", || {
        fs::File::open(&image).is_ok_and(|image| {
            rustix::fs::flock(&image, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
        })
    });
    e2fsck_fn(&image).expect("healthy");
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    assert_eq!(fs::read(kernel.path().join("file")).expect("read"), [0; 4096]);
}
