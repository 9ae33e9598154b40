//! Quotas counted through random histories: against a model, and verified by e2fsck, which counts
//! them again.

mod common;

use common::edited::{Image, named, rng};
use extant_engine::XattrSet;
use extant_engine::edit::{AllocationRequest, Edit, Limits, Purpose, Usage, write_inode};
use extant_engine::testing::ScratchEdit;
use extant_engine::write::mapping::{self, ExtentState};
use extant_engine::write::quota::{self, Owners};
use extant_engine::write::{space, xattr};
use extant_ondisk::FileBlock;
use extant_ondisk::quota::{QuotaKind, QuotaRecord};
use extant_ondisk::time::Timestamp;
use extant_ondisk::xattr::XattrName;
use extant_reader::{Error, LoadedInode, MetadataRead};
use extant_testkit::{skip, tool};
use proptest::test_runner::TestRng;
use rand::RngExt;
use std::collections::BTreeMap;

const ALL: &str = "quotatype=usrquota:grpquota:prjquota";

/// Gives the file blocks at its end.
fn extend(edit: &mut ScratchEdit, file: &mut LoadedInode, count: u64) -> Result<(), Error> {
    let block_size = u64::from(edit.geometry().block_size);
    let at = FileBlock(file.size.div_ceil(block_size));
    let request = AllocationRequest {
        inode: file.number,
        purpose: Purpose::Data,
        goal: None,
        count,
        part: None,
    };
    let run = mapping::allocate(edit, file, at, request, ExtentState::Written)?;
    file.inode.size = (at.0 + run.count) * block_size;
    write_inode(edit, file.number, &file.inode)
}

fn owners(random: &mut TestRng, has_project: bool) -> Owners {
    let mut id = || match random.random_range(0..4_u32) {
        0 => random.random_range(0..3_u32),
        1 => random.random_range(0..300),
        2 => random.random_range(0..1 << 16),
        _ => random.random_range(0..u32::MAX),
    };
    Owners { uid: id(), gid: id(), project: if has_project { id() } else { 0 } }
}

fn history(options: &[&str], seed: u8) {
    let image = Image::new(options, "24M");
    let mut edit = image.edit();
    let has_project = edit.info().quota_file(QuotaKind::Project).is_some();
    let mut random = rng(seed);
    let mut files = ["file", "target"].map(|name| named(&edit, name));
    for round in 0..3 {
        for turn in 0..120 {
            let file = &mut files[turn % 2];
            match random.random_range(0..6_u32) {
                0..=2 => {
                    let to = owners(&mut random, has_project);
                    quota::transfer(&mut edit, file, to, Limits::Enforced).unwrap();
                    (file.inode.uid, file.inode.gid) = (to.uid, to.gid);
                    file.inode.project = file.project.map(|_| to.project);
                }
                3 => extend(&mut edit, file, random.random_range(1..30)).unwrap(),
                4 => {
                    let from = FileBlock(random.random_range(0..200));
                    let end = FileBlock(from.0 + random.random_range(1..100));
                    let mut next = Some(from);
                    while let Some(start) = next {
                        next = mapping::remove_step(&mut edit, file, start..end, 9).unwrap();
                    }
                }
                _ => {
                    let name = XattrName::parse(b"user.some").unwrap();
                    let value = vec![7; random.random_range(0..800)];
                    xattr::set(&mut edit, file, &name, &value, XattrSet::Any).unwrap();
                }
            }
            write_inode(&mut edit, file.number, &file.inode).unwrap();
        }
        image.verify(&edit);
        if round == 1 {
            let used = quota::record(&edit, QuotaKind::User, files[0].uid).unwrap().unwrap();
            assert!(used.space >= files[0].space(edit.geometry()), "{used:?}");
            assert!(used.inodes >= 1);
        }
    }
}

#[test]
fn e2fsck_counts_what_we_counted() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, seed) in [
        (&["-t", "ext4", "-b", "1024", "-O", "quota"][..], 1),
        (&["-t", "ext4", "-b", "4096", "-O", "quota,project", "-E", ALL], 2),
        (&["-t", "ext4", "-b", "1024", "-O", "quota,project,ea_inode", "-E", ALL], 3),
        (&["-t", "ext4", "-b", "2048", "-I", "128", "-O", "quota,^extent,^64bit"], 4),
        (&["-t", "ext4", "-O", "quota,bigalloc,ea_inode"], 5),
        (&["-t", "ext4", "-b", "4096", "-O", "quota", "-E", "quotatype=usrquota"], 6),
    ] {
        history(options, seed);
    }
}

/// Ids in random order against a map: the tree and its leaves grow as they must.
#[test]
fn many_ids_are_found_again() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = Image::new(&["-t", "ext4", "-b", "4096", "-O", "quota"], "24M");
    let mut edit = image.edit();
    let mut random = rng(9);
    let mut file = named(&edit, "file");
    let mut model = BTreeMap::<u32, i64>::new();
    for _ in 0..600 {
        let bits = random.random_range(1..32_u32);
        let id = random.random_range(0..1_u32 << bits);
        file.inode.uid = id;
        let space = random.random_range(1..1000_i64);
        let usage = Usage { space, inodes: 1 };
        edit.charge(&file, usage, Limits::Enforced).unwrap();
        *model.entry(id).or_default() += space;
    }
    for (id, space) in &model {
        let record = quota::record(&edit, QuotaKind::User, *id).unwrap().unwrap();
        let before = if *id == 0 { record.space.cast_signed() - space } else { 0 };
        assert_eq!(record.space.cast_signed() - before, *space, "user {id}");
    }
    assert_eq!(quota::record(&edit, QuotaKind::User, 1 << 31 | 5).unwrap(), None);
}

#[test]
fn limits_are_judged_hard_at_once_and_soft_after_the_grace_time() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = Image::new(&["-t", "ext4", "-b", "1024", "-O", "quota"], "24M");
    let mut edit = image.edit();
    let mut file = named(&edit, "file");
    let to = Owners { uid: 7, gid: 0, project: 0 };
    quota::transfer(&mut edit, &file, to, Limits::Enforced).unwrap();
    (file.inode.uid, file.inode.gid) = (7, 0);
    let limits = QuotaRecord {
        id: 7,
        block_hard: 20,
        block_soft: 10,
        inode_hard: 2,
        ..QuotaRecord::default()
    };
    quota::set_limits(&mut edit, QuotaKind::User, &limits).unwrap();

    extend(&mut edit, &mut file, 15).unwrap();
    let record = |edit: &ScratchEdit| quota::record(edit, QuotaKind::User, 7).unwrap().unwrap();
    let week = 7 * 24 * 3600;
    assert_eq!(record(&edit).block_time, edit.time.seconds as u64 + week);
    let before = (file.clone(), edit.free_clusters());
    let refused = extend(&mut edit, &mut file, 6);
    assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
    assert_eq!((file.clone(), edit.free_clusters()), before, "nothing has changed");
    extend(&mut edit, &mut file, 1).unwrap();

    edit.time = Timestamp::new(edit.time.seconds + week as i64, 0);
    let refused = extend(&mut edit, &mut file, 1);
    assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
    // A privileged caller continues.
    let usage = Usage { space: 1024, inodes: 0 };
    space::change(&mut edit, &mut file, usage, Limits::Ignored).unwrap();
    space::change(&mut edit, &mut file, usage.reversed(), Limits::Enforced).unwrap();

    let inode = Usage { space: 0, inodes: 1 };
    edit.charge(&file, inode, Limits::Enforced).unwrap();
    let refused = edit.charge(&file, inode, Limits::Enforced);
    assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
    edit.charge(&file, inode.reversed(), Limits::Enforced).unwrap();

    // Below the soft limit the grace time is over.
    let mut next = Some(FileBlock(0));
    while let Some(start) = next {
        next = mapping::remove_step(&mut edit, &mut file, start..FileBlock(8), 9).unwrap();
    }
    assert_eq!(record(&edit).block_time, 0);
    write_inode(&mut edit, file.number, &file.inode).unwrap();
    image.verify(&edit);
}
