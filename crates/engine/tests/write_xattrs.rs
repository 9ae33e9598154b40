//! Attributes set and removed at random, compared with a map in memory, read back by debugfs and
//! the kernel, verified by e2fsck.

mod common;

use common::edited::{Image, named, rng};
use extant_engine::XattrSet;
use extant_engine::edit::{AllocationRequest, Edit, Purpose, write_inode};
use extant_engine::testing::ScratchEdit;
use extant_engine::write::acl::{self, Inherited};
use extant_engine::write::xattr::{release_all, remove, set};
use extant_ondisk::InodeNo;
use extant_ondisk::acl::{Acl, AclEntry, Subject};
use extant_ondisk::xattr::{RawXattrHeader, XattrName};
use extant_reader::read::inode::load;
use extant_reader::read::xattr;
use extant_reader::{AclKind, BlockKind, Error, LoadedInode, MetadataRead};
use extant_testkit::{LoopMount, is_root, skip, tool};
use proptest::test_runner::TestRng;
use rand::RngExt;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use zerocopy::FromBytes;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn parsed(name: &[u8]) -> XattrName {
    XattrName::parse(name).unwrap()
}

fn bytes(random: &mut TestRng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.random_range(1..=255_u8)).collect()
}

/// Sets or removes one attribute; the model follows. Says whether something changed.
fn step(
    edit: &mut ScratchEdit,
    file: &mut LoadedInode,
    model: &mut Model,
    random: &mut TestRng,
    longest: usize,
) -> bool {
    let prefix = ["user.", "trusted.", "security."][random.random_range(0..3_usize)];
    let index = random.random_range(0..8_u32);
    let name = format!("{prefix}{}{index}", "n".repeat(index as usize * 5)).into_bytes();
    let before = file.clone();
    let outcome = if random.random_range(0..4_u32) == 0 {
        let outcome = remove(edit, file, &parsed(&name));
        match model.remove(&name) {
            Some(_) => assert!(outcome.is_ok(), "{outcome:?}"),
            None => assert!(matches!(outcome, Err(Error::NoXattr)), "{outcome:?}"),
        }
        outcome
    } else {
        let top = [40, 300, longest][random.random_range(0..3_usize)];
        let len = random.random_range(0..=top);
        let value = bytes(random, len);
        let outcome = set(edit, file, &parsed(&name), &value, XattrSet::Any);
        match &outcome {
            Ok(()) => drop(model.insert(name, value)),
            Err(Error::NoSpace | Error::NoXattrRoom) => {}
            Err(error) => panic!("{error}"),
        }
        outcome
    };
    if outcome.is_err() {
        assert_eq!(*file, before, "a failed call has changed nothing");
    }
    outcome.is_ok()
}

fn compare(edit: &ScratchEdit, file: &LoadedInode, model: &Model) {
    let names = xattr::list(edit, file).unwrap();
    assert_eq!(names.len(), model.len());
    for (name, value) in model {
        let found = xattr::get(edit, file, name).unwrap();
        assert!(found == *value, "{}", name.escape_ascii());
    }
}

fn history(options: &[&str], seed: u8, longest: usize) {
    let image = Image::new(options, "24M");
    let mut edit = image.edit();
    let (clusters, inodes) = (edit.free_clusters(), edit.free_inodes());
    let mut random = rng(seed);
    let mut files = ["file", "target", "dir"].map(|name| (named(&edit, name), Model::new()));
    let blocks = files.each_ref().map(|(file, _)| file.space(edit.geometry()));
    for round in 0..3 {
        for turn in 0..60 {
            let (file, model) = &mut files[turn % 3];
            step(&mut edit, file, model, &mut random, longest);
            write_inode(&mut edit, file.number, &file.inode).unwrap();
            *file = load(&edit, file.number).unwrap();
        }
        for (index, (file, model)) in files.iter().enumerate() {
            compare(&edit, file, model);
            let space = file.space(edit.geometry()) as i64 - blocks[index] as i64;
            assert_eq!(edit.charged(file.number).space, space, "quota goes with i_blocks");
        }
        image.verify(&edit);
        if round == 1 {
            read_by_the_kernel(&image, &files);
        }
    }
    for (file, _) in &mut files {
        release_all(&mut edit, file).unwrap();
        assert_eq!(xattr::list(&edit, file).unwrap(), []);
        write_inode(&mut edit, file.number, &file.inode).unwrap();
        assert_eq!(edit.charged(file.number), Default::default());
    }
    assert_eq!((edit.free_clusters(), edit.free_inodes()), (clusters, inodes), "nothing is lost");
    image.verify(&edit);
}

/// The kernel reads the same from the image.
fn read_by_the_kernel(image: &Image, files: &[(LoadedInode, Model); 3]) {
    if !is_root() {
        return extant_testkit::skipped("reading through a mount needs root");
    }
    let mount = LoopMount::new(&image.path, "ro,noload").unwrap();
    for (name, (_, model)) in ["file", "target", "dir"].iter().zip(files) {
        let path = mount.path().join(name);
        let mut list = vec![0; 1 << 16];
        let len = rustix::fs::listxattr(&path, &mut list).unwrap();
        assert_eq!(list[..len].iter().filter(|byte| **byte == 0).count(), model.len());
        for (name, value) in model {
            let mut found = vec![0; 1 << 17];
            let len = rustix::fs::getxattr(&path, name.as_slice(), &mut found).unwrap();
            assert!(found[..len] == *value, "{}", name.escape_ascii());
        }
    }
}

#[test]
fn a_random_history_agrees_with_its_model_with_the_kernel_and_with_e2fsck() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, longest) in [
        (&["-t", "ext4", "-b", "1024"][..], 800),
        (&["-t", "ext4", "-b", "4096"], 3000),
        (&["-t", "ext4", "-b", "1024", "-I", "128"], 900),
        (&["-t", "ext4", "-b", "1024", "-I", "1024", "-O", "inline_data"], 900),
        (&["-t", "ext3", "-b", "1024", "-I", "128"], 900),
        (&["-t", "ext2", "-b", "4096"], 3000),
        (&["-t", "ext4", "-O", "bigalloc"], 3000),
        (&["-t", "ext4", "-b", "1024", "-O", "ea_inode"], 20_000),
        (&["-t", "ext4", "-O", "ea_inode,bigalloc"], 60_000),
        (&["-t", "ext4", "-b", "4096", "-O", "ea_inode,^extent,^64bit"], 60_000),
    ] {
        history(options, 5, longest);
    }
}

/// A block of two files, made by hand: one file leaves it with each change.
#[test]
fn a_shared_block_is_copied_before_it_changes() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in
        [&["-t", "ext4", "-b", "1024", "-O", "ea_inode"][..], &["-t", "ext4", "-b", "4096"]]
    {
        let image = Image::new(options, "24M");
        let mut edit = image.edit();
        let free = (edit.free_clusters(), edit.free_inodes());
        let (mut first, mut second) = (named(&edit, "file"), named(&edit, "target"));
        // The inode is full, so that the others go to the block.
        set(&mut edit, &mut first, &parsed(b"user.filler"), &[6; 60], XattrSet::Any).unwrap();
        let name = parsed(b"user.shared");
        set(&mut edit, &mut first, &name, &[7; 900], XattrSet::Any).unwrap();
        if options.contains(&"ea_inode") {
            let name = parsed(b"user.with an inode");
            set(&mut edit, &mut first, &name, &[8; 5000], XattrSet::Any).unwrap();
        }
        let shared = first.file_acl;
        let charged = edit.charged(first.number);
        edit.modify(shared, BlockKind::XattrBlock, |bytes| {
            let (header, _) = RawXattrHeader::mut_from_prefix(bytes).unwrap();
            header.h_refcount.set(2);
        })
        .unwrap();
        second.inode.file_acl = shared;
        second.inode.blocks += (charged.space / 512) as u64;
        write_inode(&mut edit, first.number, &first.inode).unwrap();
        write_inode(&mut edit, second.number, &second.inode).unwrap();
        image.verify(&edit);

        let other = parsed(b"user.other");
        set(&mut edit, &mut second, &other, &[9; 90], XattrSet::Any).unwrap();
        set(&mut edit, &mut second, &name, &[1; 600], XattrSet::Replace).unwrap();
        write_inode(&mut edit, second.number, &second.inode).unwrap();
        assert_ne!(second.file_acl, shared);
        assert_eq!(first.file_acl, shared);
        assert_eq!(xattr::get(&edit, &first, b"user.shared").unwrap(), [7; 900]);
        assert_eq!(xattr::get(&edit, &second, b"user.shared").unwrap(), [1; 600]);
        image.verify(&edit);

        for file in [&mut first, &mut second] {
            release_all(&mut edit, file).unwrap();
            write_inode(&mut edit, file.number, &file.inode).unwrap();
        }
        assert_eq!((edit.free_clusters(), edit.free_inodes()), free);
        image.verify(&edit);
    }
}

#[test]
fn each_refusal_changes_nothing() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = Image::new(&["-t", "ext4", "-b", "1024", "-O", "ea_inode"], "8M");
    let mut edit = image.edit();
    let mut file = named(&edit, "file");
    let name = parsed(b"user.name");
    let refused = set(&mut edit, &mut file, &name, b"x", XattrSet::Replace);
    assert!(matches!(refused, Err(Error::NoXattr)), "{refused:?}");
    set(&mut edit, &mut file, &name, b"x", XattrSet::Create).unwrap();
    let refused = set(&mut edit, &mut file, &name, b"y", XattrSet::Create);
    assert!(matches!(refused, Err(Error::Exists)), "{refused:?}");
    let refused = set(&mut edit, &mut file, &name, &[0; 65_537], XattrSet::Any);
    assert!(matches!(refused, Err(Error::XattrTooLarge)), "{refused:?}");

    // A full volume: blocks for a part of the value only.
    let request = AllocationRequest {
        inode: InodeNo::ROOT,
        purpose: Purpose::Data,
        goal: None,
        count: edit.free_clusters() - 20,
        part: None,
    };
    let mut runs = Vec::new();
    while edit.free_clusters() > 20 {
        let count = edit.free_clusters() - 20;
        let request = AllocationRequest { count, ..request };
        runs.push(edit.allocate(request).unwrap());
    }
    let before = file.clone();
    let refused = set(&mut edit, &mut file, &name, &[1; 60_000], XattrSet::Any);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    assert_eq!(file, before);
    assert_eq!(edit.free_clusters(), 20);
    for run in runs {
        edit.free(run, Purpose::Data).unwrap();
    }
    write_inode(&mut edit, file.number, &file.inode).unwrap();
    image.verify(&edit);
}

/// Lists set, changed by chmod and inherited as getfacl(1) shows them on a mount.
#[test]
fn lists_and_modes_go_together_as_on_the_kernel() {
    if !is_root() || tool("getfacl").is_none() || tool("mke2fs").is_none() {
        skip!("no root, getfacl or mke2fs");
    }
    let entry = |subject, permissions| AclEntry { subject, permissions };
    let list = Acl::new(vec![
        entry(Subject::Owner, 7),
        entry(Subject::User(1000), 6),
        entry(Subject::OwningGroup, 5),
        entry(Subject::Group(77), 4),
        entry(Subject::Mask, 7),
        entry(Subject::Other, 1),
    ])
    .unwrap();
    let image = Image::new(&["-t", "ext4"], "8M");
    let mut edit = image.edit();
    let [mut file, mut target, mut dir] = ["file", "target", "dir"].map(|name| named(&edit, name));
    acl::set(&mut edit, &mut dir, AclKind::Default, Some(&list)).unwrap();
    acl::set(&mut edit, &mut dir, AclKind::Access, Some(&Acl::of_mode(0o750))).unwrap();
    let refused = acl::set(&mut edit, &mut file, AclKind::Default, Some(&list));
    assert!(matches!(refused, Err(Error::NotADirectory)), "{refused:?}");
    acl::set(&mut edit, &mut file, AclKind::Access, Some(&list)).unwrap();
    acl::chmod(&mut edit, &mut file, 0o4640).unwrap();
    Inherited::of(Some(&list), 0o100_660, 0o777).give(&mut edit, &mut target).unwrap();
    for file in [&file, &target, &dir] {
        write_inode(&mut edit, file.number, &file.inode).unwrap();
    }
    image.verify(&edit);

    let mount = LoopMount::new(&image.path, "acl").unwrap();
    let shown = |name: &str| {
        let path = mount.path().join(name);
        let path = path.to_str().unwrap();
        let text = tool("getfacl").unwrap().text(["-n", "-c", "-p", "-E", path]).unwrap();
        text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        shown("file"),
        "user::rw- user:1000:rw- group::r-x group:77:r-- mask::r-- other::---"
    );
    assert_eq!(
        shown("dir"),
        "user::rwx group::r-x other::--- default:user::rwx default:user:1000:rw- default:group::r-x \
         default:group:77:r-- default:mask::rwx default:other::--x"
    );
    // The kernel creates in the directory the same as we do.
    let made = mount.path().join("dir/made");
    let mode = rustix::fs::Mode::from_raw_mode(0o660);
    rustix::fs::open(&made, rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR, mode).unwrap();
    assert_eq!(shown("dir/made"), shown("target"));
    let mode_of =
        |name: &str| std::fs::metadata(mount.path().join(name)).unwrap().permissions().mode();
    assert_eq!((mode_of("file"), mode_of("target")), (0o104_640, mode_of("dir/made")));
}
