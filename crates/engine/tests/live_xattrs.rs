//! Attributes, lists, flags and projects of files on an open volume: held to a map in memory, to
//! e2fsck, and to the kernel.

use extant_device::Device;
use extant_engine::testing::ScratchEdit;
use extant_engine::write::quota;
use extant_engine::{Credentials, SetAttributes, Volume, VolumeOptions, XattrSet};
use extant_ondisk::InodeNo;
use extant_ondisk::acl::{Acl, AclEntry, Subject};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::quota::{QuotaKind, QuotaRecord};
use extant_reader::{AclKind, Error, LoadedInode, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{LoopMount, TempImage, e2fsck_fn, is_root, skip, tool};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const BY: Credentials = Credentials { is_privileged: false, ..Credentials::ROOT };

fn open_live(path: &Path) -> Volume {
    let device = extant_device::FileDeviceOptions::new().write(true).open(path).unwrap();
    let options = VolumeOptions::default();
    Volume::open(Arc::new(device), &Env::threads(), &options).unwrap()
}

/// Sets and removes attributes of a few files that come and go.
fn history(options: &[&str], seed: u64, longest: usize) {
    let image = TempImage::by_mke2fs(32 << 20, options).unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = BTreeMap::<String, BTreeMap<String, Vec<u8>>>::new();
    for _ in 0..3 {
        let volume = open_live(&image.path());
        for _ in 0..150 {
            let file = format!("file{}", random.random_range(0..5_u32));
            if !model.contains_key(&file) {
                volume.create(InodeNo::ROOT, file.as_bytes(), 0o644, &BY).unwrap();
                model.insert(file.clone(), BTreeMap::new());
            }
            let inode = volume.lookup(InodeNo::ROOT, file.as_bytes()).unwrap().inode;
            let attributes = model.get_mut(&file).unwrap();
            let space = ["user", "trusted", "security"][random.random_range(0..3_usize)];
            let name = format!("{space}.name{}", random.random_range(0..6_u32));
            match random.random_range(0..10_u32) {
                0 => {
                    volume.unlink(InodeNo::ROOT, file.as_bytes()).unwrap();
                    model.remove(&file);
                }
                1..=3 => match volume.remove_xattr(inode, name.as_bytes()) {
                    Ok(()) => assert!(attributes.remove(&name).is_some()),
                    Err(Error::NoXattr) => assert!(!attributes.contains_key(&name)),
                    Err(error) => panic!("{error}"),
                },
                _ => {
                    let top = [30, 200, longest][random.random_range(0..3_usize)];
                    let len = random.random_range(0..=top);
                    let value: Vec<u8> = (0..len).map(|_| random.random_range(0..=255)).collect();
                    match volume.set_xattr(inode, name.as_bytes(), &value, XattrSet::Any) {
                        Ok(()) => drop(attributes.insert(name, value)),
                        Err(Error::NoSpace | Error::NoXattrRoom) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        for (file, attributes) in &model {
            let inode = volume.lookup(InodeNo::ROOT, file.as_bytes()).unwrap().inode;
            assert_eq!(volume.xattrs(inode).unwrap().len(), attributes.len());
            for (name, value) in attributes {
                assert!(volume.xattr(inode, name.as_bytes()).unwrap() == *value, "{name}");
            }
        }
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
    if is_root() && !options.iter().any(|option| option.contains("quota")) {
        let mount = LoopMount::new(&image.path(), "").unwrap();
        for (file, attributes) in &model {
            for (name, value) in attributes {
                let mut found = vec![0; 1 << 16];
                let path = mount.path().join(file);
                let len = rustix::fs::getxattr(&path, name, &mut found).unwrap();
                assert!(found[..len] == *value, "{name}");
            }
        }
    }
}

#[test]
fn attributes_of_files_that_come_and_go_are_those_of_the_model() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, longest) in [
        (&["-t", "ext4", "-b", "1024"][..], 800),
        (&["-t", "ext4", "-b", "4096", "-O", "ea_inode"], 30_000),
        (&["-t", "ext2", "-b", "1024", "-I", "128"], 900),
        (&["-t", "ext4", "-O", "bigalloc,quota,ea_inode"], 10_000),
        (&["-t", "ext4", "-O", "^has_journal,quota", "-b", "1024"], 800),
    ] {
        history(options, 3, longest);
    }
}

/// Each name and file as the kernel 6.18 treats it.
#[test]
fn names_and_files_that_take_no_attribute_are_refused() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = TempImage::by_mke2fs(8 << 20, &["-t", "ext4"]).unwrap();
    let volume = open_live(&image.path());
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &BY).unwrap().number;
    let set = |name: &[u8], value: &[u8]| volume.set_xattr(file, name, value, XattrSet::Any);
    assert!(matches!(set(b"user.", b""), Err(Error::Invalid(_))));
    for name in [&b"user"[..], b"foo.bar", b"system.data", b"system.foo", b""] {
        assert!(matches!(set(name, b""), Err(Error::NotSupported(_))), "{}", name.escape_ascii());
    }
    let long = [b"user.".as_slice(), &[b'n'; 251]].concat();
    assert!(matches!(set(&long, b""), Err(Error::XattrNameTooLong)));
    set(&long[..255], b"").unwrap();
    assert!(matches!(set(b"user.large", &[0; 65_537]), Err(Error::XattrTooLarge)));
    assert!(matches!(set(b"user.large", &[0; 65_536]), Err(Error::NoXattrRoom)));
    assert!(matches!(set(b"system.posix_acl_access", b"x"), Err(Error::Invalid(_))));

    volume.set_flags(file, InodeFlags::IMMUTABLE | InodeFlags::EXTENTS).unwrap();
    assert!(matches!(set(b"user.name", b""), Err(Error::NotPermitted(_))));
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

#[test]
fn flags_change_as_chattr_may_change_them() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = TempImage::by_mke2fs(8 << 20, &["-t", "ext4"]).unwrap();
    let volume = open_live(&image.path());
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &BY).unwrap().number;
    let dir = volume.mkdir(InodeNo::ROOT, b"dir", 0o755, &BY).unwrap().number;
    let set = |inode, flags: InodeFlags| volume.set_flags(inode, flags | InodeFlags::EXTENTS);

    let of_directories = set(file, InodeFlags::NODUMP | InodeFlags::TOPDIR);
    assert!(matches!(of_directories, Err(Error::NotSupported(_))), "{of_directories:?}");
    let flags = set(file, InodeFlags::NODUMP | InodeFlags::INDEX).unwrap();
    assert_eq!(flags, InodeFlags::NODUMP | InodeFlags::EXTENTS, "no more than a file may have");
    assert!(matches!(set(dir, InodeFlags::CASEFOLD), Err(Error::NotSupported(_))));
    // As Linux 6.18: the flag means nothing on a volume without projects.
    set(dir, InodeFlags::PROJECT_INHERIT).unwrap();
    assert!(matches!(volume.set_project(file, 5, false), Err(Error::NotSupported(_))));

    set(dir, InodeFlags::TOPDIR | InodeFlags::NOATIME).unwrap();
    let made = volume.create(dir, b"made", 0o644, &BY).unwrap();
    assert_eq!(made.flags, InodeFlags::NOATIME | InodeFlags::EXTENTS, "inherited");
    let refused = volume.set_generation(file, 7);
    assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}: checksums have it");

    set(file, InodeFlags::IMMUTABLE).unwrap();
    let both = InodeFlags::IMMUTABLE | InodeFlags::NODUMP;
    assert!(matches!(set(file, both), Err(Error::NotPermitted(_))), "it stays immutable");
    set(file, InodeFlags::NODUMP).unwrap();
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// The mode follows the list, new files inherit, and the kernel's getfacl agrees.
#[test]
fn lists_are_set_and_inherited() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let entry = |subject, permissions| AclEntry { subject, permissions };
    let list = Acl::new(vec![
        entry(Subject::Owner, 7),
        entry(Subject::User(1000), 6),
        entry(Subject::OwningGroup, 5),
        entry(Subject::Mask, 7),
        entry(Subject::Other, 0),
    ])
    .unwrap();
    let image = TempImage::by_mke2fs(8 << 20, &["-t", "ext4"]).unwrap();
    let volume = open_live(&image.path());
    let dir = volume.mkdir(InodeNo::ROOT, b"dir", 0o755, &BY).unwrap().number;
    let name = b"system.posix_acl_default";
    volume.set_xattr(dir, name, &list.encode_xattr(), XattrSet::Any).unwrap();
    let file = volume.create(dir, b"file", 0o666, &BY).unwrap();
    assert_eq!(file.permissions(), 0o660);
    assert_eq!(volume.acl(file.number, AclKind::Access).unwrap().unwrap().mode(), 0o660);
    let sub = volume.mkdir(dir, b"sub", 0o777, &BY).unwrap();
    assert_eq!(volume.acl(sub.number, AclKind::Default).unwrap(), Some(list.clone()));
    volume.set_acl(file.number, AclKind::Access, Some(&Acl::of_mode(0o604))).unwrap();
    assert_eq!(volume.inode(file.number).unwrap().permissions(), 0o604);
    assert_eq!(volume.xattrs(file.number).unwrap(), [], "the mode says it all");
    volume.remove_xattr(sub.number, name).unwrap();
    assert!(matches!(volume.remove_xattr(sub.number, name), Err(Error::NoXattr)));
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

#[test]
fn what_a_file_uses_moves_to_its_new_project() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let options =
        ["-t", "ext4", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"];
    let image = TempImage::by_mke2fs(16 << 20, &options).unwrap();
    let volume = open_live(&image.path());
    let used = |project| {
        let record = quota::record(&volume, QuotaKind::Project, project);
        let record: Option<QuotaRecord> = record.unwrap();
        record.map_or((0, 0), |record| (record.inodes, record.space))
    };
    let dir = volume.mkdir(InodeNo::ROOT, b"dir", 0o755, &BY).unwrap();
    volume.set_project(dir.number, 77, false).unwrap();
    volume.set_flags(dir.number, dir.flags | InodeFlags::PROJECT_INHERIT).unwrap();
    assert_eq!(used(77), (1, dir.space(volume.geometry())));
    let file = volume.create(dir.number, b"file", 0o644, &BY).unwrap();
    assert_eq!(file.project, Some(77));
    assert_eq!(used(77).0, 2);
    let value = [1; 500];
    volume.set_xattr(file.number, b"user.name", &value, XattrSet::Any).unwrap();
    let block = u64::from(volume.geometry().block_size);
    assert_eq!(used(77), (2, dir.space(volume.geometry()) + block));
    volume.set_project(file.number, 0, false).unwrap();
    assert_eq!(used(77), (1, dir.space(volume.geometry())));
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// chown by root is not bound by limits; that of an owner to another of the owner's groups is.
#[test]
fn a_file_is_not_given_to_a_group_beyond_its_limits() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "quota"]).unwrap();
    let device = extant_device::FileDeviceOptions::new().write(true).open(image.path()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let mut edit = ScratchEdit::new(Reader::open(device.clone()).unwrap());
    let limits = QuotaRecord { id: 55, inode_hard: 1, ..QuotaRecord::default() };
    quota::set_limits(&mut edit, QuotaKind::Group, &limits).unwrap();
    edit.write_out(device.as_ref()).unwrap();
    drop((edit, device));
    let volume = open_live(&image.path());
    let files =
        [b"one", b"two"].map(|name| volume.create(InodeNo::ROOT, name, 0o644, &BY).unwrap().number);
    let give = |file, limits_bind| {
        let set = SetAttributes { gid: Some(55), limits_bind, ..SetAttributes::default() };
        volume.set_attributes(file, &set).map(|inode| inode.gid)
    };
    assert_eq!(give(files[0], true).unwrap(), 55);
    assert_eq!(give(files[0], true).unwrap(), 55, "it has it already");
    assert!(matches!(give(files[1], true), Err(Error::QuotaExceeded)));
    assert_eq!(volume.inode(files[1]).unwrap().gid, 0);
    assert_eq!(give(files[1], false).unwrap(), 55);
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// The space available for data: blocks that are not kept for others, and limits that allow them.
#[test]
fn room_is_judged_by_free_space_and_limits() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "quota", "-m", "25"]).unwrap();
    let device = extant_device::FileDeviceOptions::new().write(true).open(image.path()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let mut edit = ScratchEdit::new(Reader::open(device.clone()).unwrap());
    let limits = QuotaRecord { id: 7, block_hard: 1024, ..QuotaRecord::default() };
    quota::set_limits(&mut edit, QuotaKind::User, &limits).unwrap();
    edit.write_out(device.as_ref()).unwrap();
    drop((edit, device));
    let volume = open_live(&image.path());
    let by = |uid, is_privileged| Credentials { uid, is_privileged, ..BY };
    let [limited, other] = [7, 8].map(|uid| {
        let name = format!("of{uid}");
        volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &by(uid, false)).unwrap()
    });
    let has_room = |file: &LoadedInode, bytes, is_privileged| {
        volume.has_room(file, bytes, &by(file.inode.uid, is_privileged)).unwrap()
    };
    assert!(has_room(&limited, 1 << 20, false) && !has_room(&limited, (1 << 20) + 1024, false));
    assert!(has_room(&limited, (1 << 20) + 1024, true), "limits do not bind the privileged");
    volume.write_by(limited.number, 0, &[7; 512 << 10], &by(7, false)).unwrap();
    assert!(has_room(&limited, 512 << 10, false) && !has_room(&limited, 516 << 10, false));

    let statfs = volume.stat_fs().unwrap();
    let block = u64::from(statfs.block_size);
    let (available, kept) = (statfs.available_blocks, volume.superblock().reserved_blocks);
    assert!(available > 0 && kept > 0 && available + kept < statfs.free_blocks);
    assert!(has_room(&other, available * block, false));
    assert!(!has_room(&other, (available + 1) * block, false));
    let for_root = available + kept;
    assert!(has_room(&other, for_root * block, true));
    assert!(!has_room(&other, (for_root + 1) * block, true));
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// One block for all who have the same attributes, one inode for all who have the same value;
/// e2fsck counts the users.
#[test]
fn what_is_equal_is_stored_once() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, value) in [
        (&["-t", "ext4", "-b", "1024", "-I", "128"][..], vec![7; 500]),
        (&["-t", "ext4", "-b", "1024", "-O", "ea_inode"], vec![9; 20_000]),
    ] {
        let image = TempImage::by_mke2fs(8 << 20, options).unwrap();
        let volume = open_live(&image.path());
        let free = |volume: &Volume| {
            let found = volume.stat_fs().unwrap();
            (found.free_blocks, found.free_inodes)
        };
        let name = |at: u32| format!("file{at}").into_bytes();
        let files: Vec<_> = (0..12)
            .map(|at| volume.create(InodeNo::ROOT, &name(at), 0o644, &BY).unwrap().number)
            .collect();
        let before = free(&volume);
        let set = |file, value: &[u8]| volume.set_xattr(file, b"user.same", value, XattrSet::Any);
        set(files[0], &value).unwrap();
        let with_one = free(&volume);
        for file in &files[1..] {
            set(*file, &value).unwrap();
        }
        assert_eq!(free(&volume), with_one, "{options:?}: eleven more users");
        // One changes, one is rid of it, two are deleted: the others keep theirs.
        set(files[0], &value[1..]).unwrap();
        volume.remove_xattr(files[1], b"user.same").unwrap();
        for at in [2, 3] {
            volume.unlink(InodeNo::ROOT, &name(at)).unwrap();
        }
        for file in &files[4..] {
            assert_eq!(volume.xattr(*file, b"user.same").unwrap(), value);
        }
        assert_eq!(volume.xattr(files[0], b"user.same").unwrap(), value[1..]);
        volume.sync().unwrap();
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
        let volume = open_live(&image.path());
        for at in (0..12).filter(|at| ![2, 3].contains(at)) {
            volume.unlink(InodeNo::ROOT, &name(at)).unwrap();
        }
        volume.sync().unwrap();
        assert_eq!(free(&volume), (before.0, before.1 + 12), "{options:?}: nothing is left");
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}
