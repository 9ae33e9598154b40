//! The server by itself, without the kernel in front of it: its checks, and the calls that do not
//! block.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use extant_device::FileDeviceOptions;
use extant_engine::{Volume, VolumeOptions};
use extant_mount::{Caller, Server, WriteBy, parse_options};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::InodeFlags;
use extant_runtime::env::Env;
use extant_testkit::{Scratch, mke2fs, skip, tool};
use rustix::io::Errno;

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const OWNER: Caller = Caller { uid: 1000, gid: 1000 };
const OTHER: Caller = Caller { uid: 1001, gid: 1001 };

/// A server of a new volume.
fn server(scratch: &Scratch, args: &[&str], size: &str) -> Arc<Server> {
    let path = scratch.join("disk.img");
    let words = ["-q", "-F", "-t", "ext4"].iter().chain(args).copied();
    let words: Vec<&str> = words.chain([path.to_str().expect("a plain path"), size]).collect();
    mke2fs(words).expect("mke2fs");
    let device = FileDeviceOptions::new().write(true).open(&path).expect("the image");
    let env = Env::threads();
    let volume = Volume::open(Arc::new(device), &env, &VolumeOptions::default()).expect("a volume");
    Arc::new(Server::new(volume, env, &parse_options([]).expect("no options")))
}

fn file(server: &Server, name: &str, mode: u32, by: Caller) -> InodeNo {
    let made = server.make(InodeNo::ROOT, name.as_bytes(), (0o100_000 | mode, 0), (0, 0), by);
    made.expect("made").attributes.inode
}

/// `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR` (linux/fs.h).
const SET_FLAGS: u32 = 0x4008_6602;
const SET_FSXATTR: u32 = 0x401c_5820;
const GET_FLAGS: u32 = 0x8008_6601;

fn flags(server: &Server, file: InodeNo) -> InodeFlags {
    let answer = server.ioctl(file, GET_FLAGS, &[], ROOT).expect("flags");
    InodeFlags::from_bits_retain(u32::from_le_bytes(answer[..4].try_into().expect("four bytes")))
}

/// Kernels before 5.13 pass these on without having checked the caller.
#[test]
fn flags_and_projects_are_for_the_owner_and_some_for_root_alone() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let args = ["-I", "256", "-O", "quota,project", "-E", "quotatype=prjquota"];
    let server = server(&scratch, &args, "32M");
    let file = file(&server, "file", 0o644, OWNER);
    let usual = flags(&server, file);
    let set = |flags: InodeFlags, by| {
        server.ioctl(file, SET_FLAGS, &u64::from(flags.bits()).to_le_bytes(), by)
    };
    let fsxattr = |xflags: u32, project: u32| {
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&xflags.to_le_bytes());
        bytes[12..16].copy_from_slice(&project.to_le_bytes());
        bytes
    };
    let set_fsxattr =
        |xflags, project, by| server.ioctl(file, SET_FSXATTR, &fsxattr(xflags, project), by);
    assert_eq!(set(usual | InodeFlags::NODUMP, OTHER), Err(Errno::PERM), "another's file");
    assert_eq!(set_fsxattr(0x80, 0, OTHER), Err(Errno::PERM), "another's file");
    assert_eq!(set_fsxattr(0, 7, OTHER), Err(Errno::PERM), "another's file");
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND, InodeFlags::JOURNAL_DATA] {
        assert_eq!(set(usual | flag, OWNER), Err(Errno::PERM), "{flag:?}: for root");
    }
    for bit in [0x8, 0x10] {
        assert_eq!(set_fsxattr(bit, 0, OWNER), Err(Errno::PERM), "{bit:#x}: for root");
    }
    assert_eq!(flags(&server, file), usual, "nothing of it was done");
    assert_eq!(set(usual | InodeFlags::NODUMP, OWNER), Ok(Vec::new()));
    assert_eq!(set_fsxattr(0x80, 7, OWNER), Ok(Vec::new()));
    assert_eq!(set(usual | InodeFlags::APPEND, ROOT), Ok(Vec::new()));
    // It stays, so that nothing of root's is changed; and it is not for the owner to take away.
    assert_eq!(set(usual | InodeFlags::APPEND | InodeFlags::NOATIME, OWNER), Ok(Vec::new()));
    assert_eq!(set(usual, OWNER), Err(Errno::PERM), "append-only was root's to set");
    assert_eq!(set(usual, ROOT), Ok(Vec::new()));
    server.close().expect("closed");
}

/// The owner sets the bit, which says nothing of who may use what is reserved.
#[test]
fn a_set_id_bit_opens_no_reserved_blocks_to_what_the_cache_writes() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let server = server(&scratch, &["-m", "50"], "32M");
    let program = file(&server, "program", 0o6755, OWNER);
    let mut outcome = Ok(0);
    for at in (0..24_u64 << 20).step_by(1 << 20) {
        outcome = server.write(program, at, &[7; 1 << 20], WriteBy::Cache);
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome, Err(Errno::NOSPC));
    let mode = server.attributes(program).expect("stat").mode & 0o7777;
    assert_eq!(mode, 0o6755, "the kernel has judged the bits when it took the write");
    server.close().expect("closed");
}

/// Whether a thread of this process waits for a lock.
fn waits(thread: rustix::thread::Pid) -> bool {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    fs::read_to_string(stat).is_ok_and(|stat| stat.contains(") S "))
}

/// A lock that waits to be written is not read once more by a thread that reads it already: both
/// would wait for ever.
#[test]
fn a_directory_is_listed_to_its_end_while_the_volume_waits_to_be_closed() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let server = server(&scratch, &[], "32M");
    file(&server, "file", 0o644, ROOT);
    let (listed, outcome) = channel();
    let lists = server.clone();
    thread::spawn(move || {
        let mut closer = None;
        let mut names = 0;
        let done = lists.list(InodeNo::ROOT, 0, |listing, entry| {
            closer.get_or_insert_with(|| {
                let (tells, told) = channel();
                let closes = lists.clone();
                let closer = thread::spawn(move || {
                    tells.send(rustix::thread::gettid()).expect("heard");
                    closes.close()
                });
                let id = told.recv().expect("its number");
                while !waits(id) {
                    thread::sleep(Duration::from_millis(1));
                }
                closer
            });
            assert!(listing.look_up(entry.inode).is_some());
            names += 1;
            true
        });
        let closed = closer.expect("started").join().expect("no panic");
        listed.send((done, names, closed.is_ok())).expect("heard");
    });
    let outcome = outcome.recv_timeout(Duration::from_secs(20));
    assert_eq!(outcome, Ok((Ok(()), 4, true)), "`.`, `..`, lost+found and the file");
}

/// `EXT4_IOC_RESIZE_FS` with a number of blocks.
const RESIZE: u32 = 0x4008_6610;

#[test]
fn growth_is_for_the_mounts_owner_and_needs_a_planner() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let server = server(&scratch, &[], "32M");
    let grow = |blocks: &[u8], by| server.ioctl(InodeNo::ROOT, RESIZE, blocks, by);
    assert_eq!(grow(&100_000_u64.to_le_bytes(), OTHER), Err(Errno::PERM));
    assert_eq!(grow(&100_000_u64.to_le_bytes(), ROOT), Err(Errno::OPNOTSUPP));
    assert_eq!(grow(&[0; 4], ROOT), Err(Errno::INVAL));
    server.close().expect("closed");
}
