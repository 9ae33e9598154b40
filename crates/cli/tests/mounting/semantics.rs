//! Calls through the mount: attributes, lists, flags, projects, files without names,
//! holes, copies, damage.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use extant_testkit::{LoopMount, Scratch, Tool, debugfs, e2fsck_fn, skip, tool};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::io::Errno;

use super::{Mount, can_mount, extant, image, until};

/// Runs a tool that must succeed, and gives what it printed.
fn ran(program: &str, args: &[&str], paths: &[&Path]) -> String {
    let output = Command::new("timeout").arg("60").arg(program).args(args).args(paths).output();
    let output = output.expect("timeout runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// When a file was changed last, in seconds and nanoseconds, and how many names it has.
#[derive(Debug, Eq, PartialEq)]
struct LastChanges {
    data: (i64, i64),
    inode: (i64, i64),
    links: u64,
}

fn last_changes(path: &Path) -> LastChanges {
    let stat = fs::metadata(path).expect("stat");
    LastChanges {
        data: (stat.mtime(), stat.mtime_nsec()),
        inode: (stat.ctime(), stat.ctime_nsec()),
        links: stat.nlink(),
    }
}

fn xattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn xattr_names(path: &Path) -> Vec<String> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::listxattr(path, &mut names[..]).expect("listed");
    let names = String::from_utf8_lossy(&names[..len]).into_owned();
    let mut names: Vec<String> = names.split_terminator('\0').map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn extended_attributes_are_set_as_the_calls_say_and_stay() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-b", "4096"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let file = mount.path().join("file");
    fs::write(&file, b"text").expect("write");
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&file, name, value, flags);
    let large = vec![b'x'; 3000];
    set("user.small", b"one", XattrFlags::empty()).expect("set");
    set("user.large", &large, XattrFlags::CREATE).expect("set");
    set("trusted.root", b"", XattrFlags::empty()).expect("set");
    assert_eq!(set("user.small", b"two", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.none", b"two", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(set("user.huge", &[0; 60_000], XattrFlags::empty()), Err(Errno::NOSPC));
    set("user.small", b"three", XattrFlags::REPLACE).expect("set");
    set("user.gone", b"four", XattrFlags::empty()).expect("set");
    rustix::fs::removexattr(&file, "user.gone").expect("removed");
    assert_eq!(rustix::fs::removexattr(&file, "user.gone"), Err(Errno::NODATA));
    let check = |file: &Path| {
        assert_eq!(xattr_names(file), ["trusted.root", "user.large", "user.small"]);
        assert_eq!(xattr(file, "user.small"), Ok(b"three".to_vec()));
        assert_eq!(xattr(file, "user.large"), Ok(large.clone()));
        assert_eq!(xattr(file, "trusted.root"), Ok(Vec::new()));
    };
    check(&file);
    assert_eq!(rustix::fs::getxattr(&file, "user.large", &mut [0; 10][..]), Err(Errno::RANGE));
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    check(&kernel.path().join("file"));
}

/// The output of getfacl for the whole tree is the same here and for the kernel's ext4.
#[test]
fn access_control_lists_hold_and_are_inherited() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if tool("setfacl").is_none() {
        skip!("no setfacl here");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    ran("setfacl", &["-m", "u:1234:rwx,g:77:r-x"], &[&dir]);
    ran("setfacl", &["-d", "-m", "u:1234:rw-,o::---"], &[&dir]);
    fs::create_dir(dir.join("sub")).expect("mkdir");
    fs::write(dir.join("file"), b"").expect("write");
    fs::set_permissions(dir.join("sub"), fs::Permissions::from_mode(0o2711)).expect("chmod");
    let shown = |root: &Path| {
        let args = ["-nRE", "--absolute-names"];
        ran("getfacl", &args, &[root]).replace(&*root.to_string_lossy(), "")
    };
    let here = shown(&dir);
    assert!(here.contains("default:user:1234:rw-"), "{here}");
    assert!(here.matches("user:1234:rw-").count() >= 4, "inherited by both: {here}");
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    assert_eq!(shown(&kernel.path().join("dir")), here);
}

/// As with the kernel's ext4: nothing is left to be done.
#[test]
fn a_list_that_is_not_there_is_removed_already() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        assert_eq!(rustix::fs::removexattr(&dir, name), Ok(()), "{name}");
    }
    assert_eq!(rustix::fs::removexattr(&dir, "user.none"), Err(Errno::NODATA));
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn immutable_and_append_only_files_are_kept_so() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let at = |name: &str| mount.path().join(name);
    fs::write(at("fixed"), b"fixed").expect("write");
    fs::write(at("log"), b"one").expect("write");
    ran("chattr", &["+i"], &[&at("fixed")]);
    ran("chattr", &["+a"], &[&at("log")]);
    let is_refused = |done: std::io::Result<()>| {
        let error = done.expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()), "{error}");
    };
    is_refused(fs::write(at("fixed"), b"new"));
    is_refused(fs::remove_file(at("fixed")));
    is_refused(fs::hard_link(at("fixed"), at("link")));
    is_refused(fs::rename(at("fixed"), at("moved")));
    is_refused(fs::set_permissions(at("fixed"), fs::Permissions::from_mode(0o600)));
    is_refused(fs::copy(at("log"), at("fixed")).map(|_| ()));
    is_refused(fs::write(at("log"), b"new"));
    is_refused(fs::remove_file(at("log")));
    let mut log = fs::OpenOptions::new().append(true).open(at("log")).expect("for appending");
    log.write_all(b" two").expect("write");
    is_refused(log.set_len(0));
    let now = fs::FileTimes::new();
    let then = now.set_accessed(std::time::UNIX_EPOCH).set_modified(std::time::UNIX_EPOCH);
    is_refused(log.set_times(then));
    ran("touch", &[], &[&at("log")]);
    log.sync_all().expect("what was appended is written");
    drop(log);
    assert_eq!(fs::read(at("log")).expect("read"), b"one two");
    // Data in the kernel's cache when the flag was set are written too.
    let late = fs::File::create(at("late")).expect("create");
    late.write_all_at(b"written before", 0).expect("write");
    ran("chattr", &["+i"], &[&at("late")]);
    late.sync_all().expect("what was written is kept");
    drop(late);
    let flags = |root: &Path| {
        let shown = ran("lsattr", &["-l"], &[&root.join("fixed"), &root.join("log")]);
        shown.replace(&*root.to_string_lossy(), "").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let here = flags(mount.path());
    assert_eq!(here, "/fixed Immutable, Extents /log Append_Only, Extents");
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    assert_eq!(flags(kernel.path()), here);
    assert_eq!(fs::read(kernel.path().join("log")).expect("read"), b"one two");
    assert_eq!(fs::read(kernel.path().join("late")).expect("read"), b"written before");
}

/// fstrim, and the label: an image takes no space for what is free.
#[test]
fn free_space_is_given_back_to_the_host_and_the_label_is_told() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if tool("fstrim").is_none() {
        skip!("no util-linux here");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-L", "labelled"], "256M");
    let mount = Mount::new(&scratch, &image, &[]);
    let taken = || fs::metadata(&image).expect("stat").blocks() * 512;
    let (kept, gone) = (mount.path().join("kept"), mount.path().join("gone"));
    for file in [&kept, &gone] {
        fs::write(file, vec![0x5a; 32 << 20]).expect("write");
        fs::File::open(file).and_then(|file| file.sync_all()).expect("fsync");
    }
    let free = || rustix::fs::statvfs(mount.path()).expect("statvfs").f_bavail;
    let (before, free_before) = (taken(), free());
    fs::remove_file(&gone).expect("rm");
    assert!(taken() >= before, "the host does not know yet");
    // The kernel forgets the file in its own time.
    until("the space is free", || free() > free_before);
    let said = ran("fstrim", &["-v"], &[mount.path()]);
    assert!(said.contains("trimmed"), "{said}");
    assert!(taken() + (30 << 20) < before, "{} bytes of {before} are left", taken());
    assert!(fs::read(&kept).expect("read").iter().all(|byte| *byte == 0x5a));
    if tool("python3").is_some() {
        let ask = "import fcntl, os, sys\nfd = os.open(sys.argv[1], os.O_RDONLY)\n\
                   print(fcntl.ioctl(fd, 0x81009431, bytes(256)).rstrip(b'\\0').decode())";
        let label = ran("python3", &["-c", ask], &[mount.path()]);
        assert_eq!(label.trim(), "labelled");
    }
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// Operations that overlayfs needs: the kernel's ext4 shows the same afterwards.
#[test]
fn a_whiteout_takes_the_name_of_what_is_moved_away() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let at = |name: &str| mount.path().join(name);
    fs::create_dir(at("dir")).expect("mkdir");
    fs::create_dir(at("moved")).expect("mkdir");
    for name in ["one", "two", "dir/old"] {
        fs::write(at(name), name).expect("write");
    }
    let rename =
        |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    rename("one", "dir/one", RenameFlags::WHITEOUT).expect("moved");
    rename("two", "dir/old", RenameFlags::WHITEOUT).expect("moved over another");
    rename("moved", "dir/moved", RenameFlags::WHITEOUT).expect("a directory moved");
    let exclusive = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(rename("dir/one", "dir/old", exclusive), Err(Errno::INVAL));
    let check = |root: &Path| {
        for name in ["one", "two", "moved"] {
            let stat = fs::symlink_metadata(root.join(name)).expect("stat");
            assert!(stat.file_type().is_char_device(), "{name}");
            assert_eq!((stat.rdev(), stat.mode() & 0o7777, stat.nlink()), (0, 0, 1), "{name}");
        }
        assert_eq!(fs::read(root.join("dir/one")).expect("read"), b"one");
        assert_eq!(fs::read(root.join("dir/old")).expect("read"), b"two");
        assert!(root.join("dir/moved").is_dir());
    };
    check(mount.path());
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    check(LoopMount::new(&image, "ro").expect("the kernel mounts it").path());
}

/// Changes a file through a shared mapping.
const MAPPED: &str = "import mmap, sys
with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[0:3] = b'map'
    mapped.flush()";

/// chattr's S and D: what a call has changed is there after it, without fsync.
#[test]
fn what_is_synchronous_is_there_when_its_call_returns() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let at = |name: &str| scratch.join("mount").join(name);
    for dir in ["names", "files"] {
        fs::create_dir(at(dir)).expect("mkdir");
    }
    ran("chattr", &["+D"], &[&at("names")]);
    ran("chattr", &["+S"], &[&at("files")]);
    fs::write(at("names/one"), b"").expect("create");
    fs::rename(at("names/one"), at("names/two")).expect("rename");
    // It inherits the flag.
    let file = fs::File::create_new(at("files/file")).expect("create");
    file.write_all_at(&[7; 10_000], 5).expect("write");
    let read = || fs::read(at("files/file")).expect("read");
    assert!(read() == [&[0; 5][..], &[7; 10_000]].concat());
    file.write_all_at(b"after", 0).expect("write");
    assert!(read() == [&b"after"[..], &[7; 10_000]].concat());
    mount.kill_server();
    drop(file);
    let mount = Mount::new(&scratch, &image, &[]);
    assert!(at("names/two").exists() && !at("names/one").exists());
    assert!(read() == [&b"after"[..], &[7; 10_000]].concat());
    if let Some(python) = tool("python3") {
        let output = python.command().args(["-c", MAPPED]).arg(at("files/file")).output();
        let output = output.expect("python runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(read()[..5], *b"maper");
    }
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn projects_are_set_inherited_and_limit_what_is_moved() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let args = ["-t", "ext4", "-I", "256", "-O", "quota,project", "-E", "quotatype=prjquota"];
    let image = image(&scratch, &args, "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    ran("chattr", &["-p", "42", "+P"], &[&dir]);
    fs::write(dir.join("inside"), vec![1; 10_000]).expect("write");
    fs::write(mount.path().join("outside"), b"text").expect("write");
    let shown = ran("lsattr", &["-p"], &[&dir]);
    assert!(shown.trim_start().starts_with("42 "), "{shown}");
    // A file of another project is not linked or moved into the directory.
    let outside = mount.path().join("outside");
    let error = fs::hard_link(&outside, dir.join("link")).expect_err("another project");
    assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices);
    mount.unmount();
    e2fsck_fn(&image).expect("the project's usage is right");
    let stat = debugfs(&image, "stat /dir/inside").expect("debugfs");
    assert!(stat.contains("Project:    42"), "{stat}");
}

#[test]
fn statfs_of_a_project_directory_has_what_its_limits_leave() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let args = ["-t", "ext4", "-O", "quota,project", "-E", "quotatype=prjquota"];
    let image = image(&scratch, &args, "64M");
    let set = ["quota", "--set", "project:7", "--block-hard", "20M", "--inode-hard", "50"];
    let (code, said) = extant(&set, &[&image]);
    assert_eq!(code, 0, "{said}");
    let mount = Mount::new(&scratch, &image, &["-o", "prjquota"]);
    let whole = rustix::fs::statvfs(mount.path()).expect("statfs");
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    ran("chattr", &["-p", "7", "+P"], &[&dir]);
    let file = fs::File::create(dir.join("file")).expect("create");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 5 << 20).expect("space");
    let stat = rustix::fs::statvfs(&dir).expect("statfs");
    assert_eq!(stat.f_blocks * stat.f_frsize, 20 << 20);
    assert_eq!(stat.f_files, 50);
    // The directory and the file; what they use is counted in blocks.
    assert_eq!(stat.f_ffree, 48);
    let left = stat.f_bfree * stat.f_frsize;
    assert!((14 << 20..=15 << 20).contains(&left), "{left}");
    let outside = rustix::fs::statvfs(mount.path()).expect("statfs");
    assert_eq!((outside.f_blocks, outside.f_files), (whole.f_blocks, whole.f_files));
    drop(file);
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn a_file_without_a_name_may_get_one_or_is_gone() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let unlinked = || {
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o640)
            .custom_flags(flags)
            .open(mount.path());
        file.expect("O_TMPFILE")
    };
    let mut kept = unlinked();
    let mut lost = unlinked();
    kept.write_all(b"kept").expect("write");
    lost.write_all(b"lost").expect("write");
    assert_eq!(kept.metadata().expect("stat").nlink(), 0);
    let number = std::os::fd::AsRawFd::as_raw_fd(&kept.as_fd());
    let link = format!("/proc/self/fd/{number}");
    let name = mount.path().join("named");
    rustix::fs::linkat(CWD, &*link, CWD, &name, AtFlags::SYMLINK_FOLLOW).expect("named");
    drop((kept, lost));
    assert_eq!(fs::read(&name).expect("read"), b"kept");
    assert_eq!(fs::metadata(&name).expect("stat").mode() & 0o777, 0o640);
    mount.unmount();
    e2fsck_fn(&image).expect("no orphan is left");
}

/// Holes are seen as they are, even while the kernel's cache holds data that the server has not
/// got.
#[test]
fn data_and_holes_are_found_where_they_are() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-b", "4096"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let path = mount.path().join("sparse");
    let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("create");
    let seek = |file: &fs::File, to| rustix::fs::seek(file, to);
    let check = |file: &fs::File| {
        assert_eq!(seek(file, SeekFrom::Data(0)), Ok(1 << 20));
        assert_eq!(seek(file, SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
        assert_eq!(seek(file, SeekFrom::Data((1 << 20) + 4096)), Ok(4 << 20));
        assert_eq!(seek(file, SeekFrom::Hole(4 << 20)), Ok((4 << 20) + 10));
        assert_eq!(seek(file, SeekFrom::Data((4 << 20) + 10)), Err(Errno::NXIO));
    };
    file.write_all_at(&[1; 4096], 1 << 20).expect("write");
    file.write_all_at(&[2; 10], 4 << 20).expect("write");
    check(&file);
    drop(file);
    check(&fs::File::open(&path).expect("open"));
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn ranges_are_copied_inside_the_volume() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(mount.path().join("from"), &bytes).expect("write");
    let from = fs::File::open(mount.path().join("from")).expect("open");
    let to = fs::File::create(mount.path().join("to")).expect("create");
    to.write_all_at(b"head", 0).expect("write");
    let (mut at, mut into) = (1000, 4);
    let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 250_000);
    assert_eq!((copied, at, into), (Ok(250_000), 251_000, 250_004));
    drop((from, to));
    let expected = [b"head", &bytes[1000..251_000]].concat();
    assert!(fs::read(mount.path().join("to")).expect("read") == expected);
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn the_time_of_birth_is_told() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-I", "256"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let path = mount.path().join("file");
    fs::write(&path, b"").expect("write");
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let born = |path: &Path| {
        let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), flags).expect("statx");
        let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        is_told.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
    };
    let here = born(&path);
    // Times that the kernel's cache stamps come from its coarse clock: a birth by a finer one would
    // be after the first write.
    for index in 0..50 {
        let path = mount.path().join(format!("{index}"));
        fs::write(&path, b"text").expect("write");
        let written = fs::metadata(&path).expect("stat");
        let written = (written.mtime(), written.mtime_nsec());
        let born = born(&path).map(|(seconds, nanoseconds)| (seconds, i64::from(nanoseconds)));
        assert!(born.is_none_or(|born| born <= written), "{index}: {born:?} {written:?}");
    }
    mount.unmount();
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    let there = born(&kernel.path().join("file"));
    assert!(there.is_some(), "the kernel's ext4 tells it");
    if here.is_none() {
        skip!("this kernel's FUSE does not ask for it");
    }
    assert_eq!(here, there);
}

/// A writer that fills a volume gets the error from `write`, not at the end alone.
#[test]
fn a_full_volume_ends_who_writes_on() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(timeout) = tool("timeout") else { skip!("no timeout here") };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    for name in ["one", "two"] {
        let to = format!("of={}", mount.path().join(name).display());
        let words = ["-k", "5", "60", "dd", "if=/dev/zero", &to, "bs=1M"];
        let output = timeout.command().env("LC_ALL", "C").args(words).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
    }
    // A reader gets no error, and neither does a writer when there is space again.
    assert!(fs::read(mount.path().join("one")).is_ok());
    fs::remove_file(mount.path().join("one")).expect("removed");
    fs::write(mount.path().join("two"), [7; 1 << 20]).expect("there is space");
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    assert_eq!(fs::read(kernel.path().join("two")).expect("read"), [7; 1 << 20]);
}

/// Adds a line to a file as shells do: they look at no error of `close`. What the shell said.
fn append(shell: &Tool, line: &str, file: &Path) -> Result<(), String> {
    let script = "echo \"$1\" >> \"$2\"";
    let args = ["-c", script, "-", line].map(OsStr::new);
    let output = shell.command().env("LC_ALL", "C").args(args).arg(file).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Where space is scarce `write` itself tells, and what it took is there.
#[test]
fn who_appends_to_a_file_of_a_full_volume_hears_that_it_is_full() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(shell) = tool("bash") else { skip!("no bash here") };
    for options in [&[][..], &["-o", "nowriteback_cache"][..]] {
        let scratch = Scratch::new();
        let image = image(&scratch, &["-t", "ext4"], "64M");
        let mount = Mount::new(&scratch, &image, options);
        let [log, fill] = ["log", "fill"].map(|name| mount.path().join(name));
        let mut file = fs::File::create_new(&fill).expect("create");
        while file.write_all(&[7; 1 << 20]).is_ok() {}
        drop(file);

        let line = |number: u32| format!("{number:0>999}");
        // A few lines find room in what the large file could not use.
        let mut refused = (0..1000).map(|number| (number, append(&shell, &line(number), &log)));
        let (count, refused) = refused.find(|(_, done)| done.is_err()).expect("it is full");
        let said = refused.expect_err("found as such");
        assert!(said.contains("No space left on device"), "{options:?}: {said}");
        let read = |path: &Path| fs::read_to_string(path).expect("read");
        let taken: String = (0..count).map(|number| line(number) + "\n").collect();
        let before = read(&log);
        let rest = before.strip_prefix(&taken).expect("what was taken is there");
        assert!(line(count).starts_with(rest), "what the last block had room for: {rest}");

        fs::remove_file(&fill).expect("removed");
        until("the space is free", || append(&shell, "last", &log).is_ok());
        assert!(read(&log) == before.clone() + "last\n", "{options:?}");
        mount.unmount();
        e2fsck_fn(&image).expect("healthy");
        let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
        assert!(read(&kernel.path().join("log")) == before + "last\n", "{options:?}");
    }
}

/// With times kept by the kernel's cache, and by the server.
#[test]
fn each_name_of_a_file_tells_of_its_last_change() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for options in [&[][..], &["-o", "nowriteback_cache"][..]] {
        let scratch = Scratch::new();
        let image = image(&scratch, &["-t", "ext4", "-I", "256"], "64M");
        let mount = Mount::new(&scratch, &image, options);
        let at = |name: &str| mount.path().join(name);
        let file = fs::File::create_new(at("one")).expect("create");
        let mut last = last_changes(&at("one"));
        let mut step = |what: &str, name: &str, changes_data: bool, change: &dyn Fn()| {
            // Longer than the kernel's clock stands still.
            thread::sleep(Duration::from_millis(20));
            change();
            let now = last_changes(&at(name));
            assert!(now.inode > last.inode, "{options:?}: {what}: {last:?} {now:?}");
            assert_eq!(now.data > last.data, changes_data, "{options:?}: {what}: {last:?} {now:?}");
            last = now;
        };
        step("write", "one", true, &|| file.write_all_at(&[7; 100], 0).expect("write"));
        step("link", "two", false, &|| fs::hard_link(at("one"), at("two")).expect("link"));
        step("rename", "one", false, &|| fs::rename(at("two"), at("three")).expect("rename"));
        let mode = fs::Permissions::from_mode(0o600);
        step("chmod", "three", false, &|| {
            fs::set_permissions(at("one"), mode.clone()).expect("chmod")
        });
        step("unlink", "one", false, &|| fs::remove_file(at("three")).expect("unlink"));
        step("truncate", "one", true, &|| file.set_len(50).expect("truncate"));
        if let Some(python) = tool("python3") {
            step("mapping", "one", true, &|| {
                let status = python.command().args(["-c", MAPPED]).arg(at("one")).status();
                assert!(status.expect("python runs").success());
            });
        }
        let (ours, content) = (last_changes(&at("one")), fs::read(at("one")).expect("read"));
        assert_eq!((ours.links, content.len()), (1, 50));
        drop(file);
        mount.unmount();
        e2fsck_fn(&image).expect("healthy");
        let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
        assert_eq!(last_changes(&kernel.path().join("one")), ours, "{options:?}");
        assert_eq!(fs::read(kernel.path().join("one")).expect("read"), content);
    }
}

/// Setuid is cleared when another user writes, truncates or gets the file.
#[test]
fn setuid_is_lost_to_writers_without_privileges() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(setpriv) = tool("setpriv") else { skip!("no setpriv here") };
    let scratch = Scratch::new();
    // Others must reach the mount point.
    fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o755)).expect("chmod");
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let path = mount.path().join("program");
    // Asked for alone, since the kernel gets all attributes again where a time is asked for that it
    // does not know. It goes by the mode that it knows when a program is run.
    let mode = |path: &Path| {
        let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MODE);
        u32::from(stat.expect("stat").stx_mode) & 0o7777
    };
    let source = mount.path().join("source");
    fs::write(&source, b"more").expect("write");
    let as_other = |script: &str| {
        let mut command = setpriv.command();
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", script]);
        command.arg("x").args([&path, &source]);
        assert!(command.status().expect("runs").success(), "{script}");
    };
    for script in [
        "echo more >> $1",
        "printf more | dd of=$1 oflag=direct conv=notrunc status=none",
        ": > $1",
        "truncate -s 1 $1",
        "fallocate -l 10000 $1",
        "fallocate -p -o 0 -l 4096 $1",
        "dd if=$2 of=$1 conv=notrunc status=none",
        // Copies inside the volume where that can be.
        "cat $2 >> $1",
    ] {
        // Setgid goes where the group may not execute the file too: who writes is not in the group.
        for before in [0o6777, 0o6666] {
            fs::write(&path, b"program").expect("write");
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).expect("chmod");
            as_other(script);
            assert_eq!(mode(&path), before & 0o777, "{script}");
        }
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("chmod");
    fs::OpenOptions::new().append(true).open(&path).expect("open").write_all(b"x").expect("write");
    assert_eq!(mode(&path), 0o6755, "root keeps it");
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).expect("chown");
    assert_eq!(mode(&path), 0o755, "a new owner has not set it");
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("chown");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6766)).expect("chmod");
    as_other("echo more >> $1");
    assert_eq!(
        mode(&path),
        0o2766,
        "setgid stays with who writes to a file of his group that it may not execute"
    );
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// A broken object is EUCLEAN, everything else is served, and the superblock tells of it.
#[test]
fn one_broken_directory_leaves_the_rest_alone() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-b", "4096"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    for dir in ["whole", "broken"] {
        fs::create_dir(mount.path().join(dir)).expect("mkdir");
        fs::write(mount.path().join(dir).join("file"), b"text").expect("write");
    }
    mount.unmount();
    let block = debugfs(&image, "blocks /broken").expect("debugfs");
    let block: u64 = block.trim().parse().expect("one block");
    let raw = fs::OpenOptions::new().write(true).open(&image).expect("open");
    raw.write_all_at(&[0xa5; 4096], block * 4096).expect("write");
    drop(raw);
    let mount = Mount::new(&scratch, &image, &["-o", "errors=continue"]);
    let error = fs::read(mount.path().join("broken/file")).expect_err("broken");
    assert_eq!(error.raw_os_error(), Some(Errno::UCLEAN.raw_os_error()), "{error}");
    assert_eq!(fs::read(mount.path().join("whole/file")).expect("read"), b"text");
    fs::write(mount.path().join("whole/new"), b"new").expect("the rest is still written");
    mount.unmount();
    let (_, info) = extant(&["info"], &[&image]);
    assert!(info.contains("clean with errors"), "{info}");
}

#[test]
fn a_mode_of_a_new_file_follows_the_umask_and_setgid_directories() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let dir = mount.path().join("shared");
    fs::create_dir(&dir).expect("mkdir");
    std::os::unix::fs::chown(&dir, None, Some(1234)).expect("chown");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2775)).expect("chmod");
    rustix::fs::mkdir(dir.join("sub"), Mode::from_raw_mode(0o777)).expect("mkdir");
    fs::write(dir.join("file"), b"").expect("write");
    let stat = |name: &str| fs::metadata(dir.join(name)).expect("stat");
    assert_eq!((stat("sub").gid(), stat("sub").mode() & 0o7000), (1234, 0o2000));
    assert_eq!((stat("file").gid(), stat("file").mode() & 0o7000), (1234, 0));
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}
