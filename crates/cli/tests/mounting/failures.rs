//! Devices that fail under a mount, and volumes that are full.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use extant_testkit::{Scratch, skip, tool};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::{Mount, can_mount, extant, image};

/// Room that a sparse image outgrows: a file system in memory.
struct SmallRoom(PathBuf);

impl SmallRoom {
    fn new(scratch: &Scratch) -> Option<Self> {
        let room = scratch.join("room");
        fs::create_dir(&room).expect("mkdir");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8M", "none"]).arg(&room);
        mount.status().is_ok_and(|status| status.success()).then_some(Self(room))
    }
}

impl Drop for SmallRoom {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A server in the foreground, ended when dropped.
struct Foreground(Child);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first write of metadata that fails ends all changes: it is logged, later calls say so, and
/// the image keeps it.
#[test]
fn a_device_that_fails_makes_the_volume_read_only_and_is_remembered() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let Some(room) = SmallRoom::new(&scratch) else { skip!("no tmpfs can be mounted here") };
    let image = room.0.join("disk.img");
    let made = Command::new(tool("mke2fs").expect("it is there").path())
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-J", "size=1"])
        .arg(&image)
        .arg("64M")
        .status();
    assert!(made.expect("mke2fs runs").success());
    let (point, log) = (scratch.join("mount"), scratch.join("log"));
    fs::create_dir(&point).expect("mkdir");
    let server = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["mount", "-f"])
        .args([&image, &point])
        .stdin(Stdio::null())
        .stderr(File::create(&log).expect("create"))
        .spawn();
    let server = Foreground(server.expect("it starts"));
    for _ in 0..1000 {
        if extant::rooms::mount::mount_at(&point).expect("the table").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mount = Mount::found(point.clone(), &image);
    fs::write(point.join("before"), b"text").expect("write");
    File::open(point.join("before")).expect("open").sync_all().expect("fsync");
    // The file system of the image is full now.
    let mut filler = File::create(room.0.join("filler")).expect("create");
    while filler.write_all(&[1; 1 << 16]).is_ok() {}
    let failed = (0..20_000).find_map(|number| {
        let made = fs::create_dir(point.join(format!("d{number}")));
        let synced = || File::open(&point)?.sync_all();
        made.and_then(|()| if number % 50 == 0 { synced() } else { Ok(()) }).err()
    });
    let failed = failed.expect("the device fails").raw_os_error();
    let is_told = [Errno::IO, Errno::ROFS].map(|errno| Some(errno.raw_os_error()));
    assert!(is_told.contains(&failed), "{failed:?}");
    let later = fs::write(point.join("later"), b"").expect_err("read-only");
    assert_eq!(later.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read(point.join("before")).expect("still readable"), b"text");
    mount.unmount_whatever_it_says("a full room");
    drop(server);
    // The refusal may come before the log line.
    let said = fs::read_to_string(&log).expect("readable");
    assert!(said.contains("the volume is read-only now"), "{said}");
    let (code, told) = extant(&["info"], &[&image]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("1 errors recorded"), "{told}");
    let (_, told) = extant(&["info", "-h"], &[&image]);
    assert!(told.contains("EIO"), "{told}");
    // With room again the next mount recovers.
    drop(filler);
    fs::remove_file(room.0.join("filler")).expect("removed");
    let again = Mount::new(&scratch, &image, &[]);
    assert_eq!(fs::read(again.path().join("before")).expect("there"), b"text");
    again.unmount();
}

/// Writes a file around the cache, so that space is asked for at once.
fn write_direct(path: &Path, megabytes: usize) -> rustix::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::DIRECT;
    // A program that another test starts would hold the file for as long as it runs.
    let flags = flags | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o644))?;
    let piece = vec![7; 1 << 20];
    for _ in 0..megabytes {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&file, rest)?..];
        }
    }
    Ok(())
}

/// As [`write_direct`]; on a machine with much other work what was freed may be there a moment
/// later.
fn write_soon(path: &Path, megabytes: usize) -> rustix::io::Result<()> {
    for _ in 0..20 {
        match write_direct(path, megabytes) {
            Err(Errno::NOSPC) => {
                fs::remove_file(path).expect("unlink");
                std::thread::sleep(Duration::from_millis(100));
            }
            other => return other,
        }
    }
    write_direct(path, megabytes)
}

/// The kernel reports later that it has forgotten a file, or that no process has it open any more.
#[test]
fn space_is_there_again_when_a_file_was_removed_or_closed() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let path = mount.path().join("large");
    for round in 0..20 {
        write_soon(&path, 35).unwrap_or_else(|errno| panic!("round {round}: {errno}"));
        let open = (round % 2 == 1).then(|| File::open(&path).expect("open"));
        fs::remove_file(&path).expect("unlink");
        drop(open);
    }
    // Not as long as a process has it open.
    write_soon(&path, 35).expect("alone");
    let open = File::open(&path).expect("open");
    fs::remove_file(&path).expect("unlink");
    assert_eq!(write_direct(&path, 35), Err(Errno::NOSPC));
    drop(open);
    mount.unmount();
}
