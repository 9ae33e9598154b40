//! Ranges of a file's map taken out and put in, and inline data changed and grown out: compared
//! with models, and verified by e2fsck.

mod common;

use common::edited::{Image, Model, compare, named, rng};
use extant_engine::edit::{AllocationRequest, Purpose, write_inode, write_loaded};
use extant_engine::testing::ScratchEdit;
use extant_engine::write::{dir, inline, mapping, shift};
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::{FileBlock, InodeNo, MAX_FILE_BLOCKS};
use extant_reader::read::data;
use extant_reader::read::dir::lookup;
use extant_reader::read::dir_block::EntryTarget;
use extant_reader::read::inode::load;
use extant_reader::{BrokenIndex, Error, LoadedInode, MetadataRead, Reader, VolumeRead};
use extant_testkit::{LoopMount, debugfs, is_root, skip, tool};
use rand::RngExt;
use std::collections::BTreeMap;

fn punch(edit: &mut ScratchEdit, file: &mut LoadedInode, from: u64, to: u64) {
    let mut next = Some(FileBlock(from));
    while let Some(start) = next {
        next = mapping::remove_step(edit, file, start..FileBlock(to), 9).unwrap();
    }
}

fn moved(model: &BTreeMap<u64, Model>, from: u64, by: i64) -> BTreeMap<u64, Model> {
    let place = |at: u64| if at < from { at } else { at.checked_add_signed(by).expect("in range") };
    model.iter().map(|(at, is)| (place(*at), *is)).collect()
}

/// Runs are allocated, taken out with the rest closing up, and pushed apart, at random.
fn shift_history(options: &[&str], seed: u8, longest_run: u64) {
    let image = Image::new(options, "24M");
    let mut edit = image.edit();
    edit.longest_run = longest_run;
    let mut file = named(&edit, "file");
    let geometry = edit.geometry().clone();
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    let mut random = rng(seed);
    let mut model = BTreeMap::new();
    for step in 0..700 {
        let at = random.random_range(0..3000_u64);
        let count = random.random_range(1..40_u64);
        match random.random_range(0..8_u32) {
            0..=5 if !model.contains_key(&at) => {
                let is_unwritten = random.random_range(0..3_u32) == 0;
                let state = if is_unwritten {
                    mapping::ExtentState::Unwritten
                } else {
                    mapping::ExtentState::Written
                };
                let request = AllocationRequest {
                    inode: file.number,
                    purpose: Purpose::Data,
                    goal: None,
                    count,
                    part: None,
                };
                let run =
                    mapping::allocate(&mut edit, &mut file, FileBlock(at), request, state).unwrap();
                for index in 0..run.count {
                    let block = extant_ondisk::BlockNo(run.start.0 + index);
                    let is =
                        if is_unwritten { Model::Unwritten(block) } else { Model::Written(block) };
                    model.insert(at + index, is);
                }
            }
            6 => {
                let (at, count) = (at - at % per_cluster, count * per_cluster);
                punch(&mut edit, &mut file, at, at + count);
                let mut next = Some(FileBlock(at + count));
                while let Some(from) = next {
                    next = shift::collapse_step(&mut edit, &mut file, from, count).unwrap();
                }
                model.retain(|block, _| !(at..at + count).contains(block));
                model = moved(&model, at, -(count as i64));
            }
            _ => {
                let (at, count) = (at - at % per_cluster, count * per_cluster);
                let end = shift::mapped_end(&edit, &file).unwrap();
                assert_eq!(Some(end.0 - 1), model.keys().last().copied().or(Some(u64::MAX)));
                shift::split_at(&mut edit, &mut file, FileBlock(at)).unwrap();
                let mut next = Some(FileBlock(MAX_FILE_BLOCKS));
                while let Some(before) = next {
                    next = shift::expand_step(&mut edit, &mut file, FileBlock(at), count, before)
                        .unwrap();
                }
                model = moved(&model, at, count as i64);
            }
        }
        if step % 50 == 49 {
            compare(&edit, &file, &model, 20_000);
        }
    }
    file.inode.size =
        model.last_key_value().map_or(0, |(at, _)| at + 1) * u64::from(geometry.block_size);
    write_inode(&mut edit, file.number, &file.inode).unwrap();
    image.verify(&edit);
}

#[test]
fn runs_that_close_up_and_move_apart_agree_with_their_model() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, longest_run) in [
        (&["-t", "ext4", "-b", "1024"][..], 2),
        (&["-t", "ext4", "-b", "4096"], 3),
        (&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"], 1),
    ] {
        for seed in 1..3 {
            shift_history(options, seed, longest_run);
        }
    }
}

#[test]
fn a_full_volume_refuses_and_keeps_what_it_had() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext2", "-b", "1024"]] {
        let image = Image::new(options, "8M");
        let mut edit = image.edit();
        edit.longest_run = 1;
        let mut file = named(&edit, "file");
        let request = AllocationRequest {
            inode: file.number,
            purpose: Purpose::Data,
            goal: None,
            count: 1,
            part: None,
        };
        let mut at = 0;
        // Every other block, so that the map grows as fast as it can.
        let error = loop {
            let before = file.clone();
            let state = mapping::ExtentState::Written;
            match mapping::allocate(&mut edit, &mut file, FileBlock(at), request, state) {
                Ok(_) => at += 2,
                Err(error) => {
                    assert_eq!(file, before);
                    break error;
                }
            }
        };
        assert!(matches!(error, Error::NoSpace), "{error}");
        // Far away, where an indirect map needs three blocks of pointers and there is room for one
        // or none.
        let far = FileBlock(5_000_000);
        let before = (file.clone(), edit.free_clusters());
        let state = mapping::ExtentState::Written;
        let refused = mapping::allocate(&mut edit, &mut file, far, request, state);
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        assert_eq!((file.clone(), edit.free_clusters()), before);
        punch(&mut edit, &mut file, 0, 3);
        let before = (file.clone(), edit.free_clusters());
        let refused = mapping::allocate(&mut edit, &mut file, far, request, state);
        if refused.is_err() {
            assert_eq!((file.clone(), edit.free_clusters()), before);
        }
        file.inode.size = (at + 1) * 1024;
        write_inode(&mut edit, file.number, &file.inode).unwrap();
        if refused.is_err() {
            image.verify(&edit);
        }
    }
}

const INLINE: [&[&str]; 2] = [
    &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    &["-t", "ext4", "-O", "inline_data,^metadata_csum", "-I", "1024", "-b", "1024"],
];

#[test]
fn inline_files_of_every_size_are_as_the_kernel_reads_them() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in INLINE {
        let image = Image::with_files(options, "16M", 0);
        let mut edit = image.edit();
        let mut file = named(&edit, "file");
        assert!(inline::start(&edit, &mut file).unwrap());
        let room = inline::room(&edit, &file).unwrap();
        assert!(room >= 128, "{room}");
        for size in [0, 1, 59, 60, 61, 63, 100, room - 1, room, room + 1, 61, 3] {
            inline::start(&edit, &mut file).unwrap();
            let bytes: Vec<u8> = (0..size).map(|at| at as u8 | 1).collect();
            let fits = inline::set_contents(&edit, &mut file, &bytes).unwrap();
            assert_eq!(fits, size <= room, "{size}");
            if !fits {
                continue;
            }
            write_loaded(&mut edit, &file).unwrap();
            assert_eq!(load(&edit, file.number).unwrap(), file);
            assert_eq!(inline::contents(&edit, &file).unwrap(), bytes);
            image.verify(&edit);
            if is_root() {
                let mount = LoopMount::new(&image.path, "ro").unwrap();
                assert_eq!(std::fs::read(mount.path().join("file")).unwrap(), bytes);
            }
        }
        inline::leave(&edit, &mut file).unwrap();
        file.inode.size = 0;
        write_loaded(&mut edit, &file).unwrap();
        image.verify(&edit);
        let mut buffer = [0; 8];
        assert_eq!(data::read(&edit, &file, 0, &mut buffer).unwrap(), 0);
    }
}

#[test]
fn inline_directories_change_in_place_and_grow_out() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (turn, options) in INLINE.into_iter().enumerate() {
        let image = Image::new(options, "16M");
        let mut edit = image.edit();
        let mut parent = named(&edit, "dir");
        let mut target = named(&edit, "target");
        let links_before = target.links;
        let found = EntryTarget { inode: target.number, file_type: EntryType::Regular };
        let mut random = rng(turn as u8 + 9);
        if !parent.is_inline() {
            // As a creator would have made it.
            punch(&mut edit, &mut parent, 0, 9);
            inline::start_dir(&edit, &mut parent, InodeNo::ROOT).unwrap();
        }
        let mut model: Vec<Vec<u8>> = Vec::new();
        let mut was_inline_with = 0;
        for index in 0..400_u32 {
            let most = if index < 300 { 6 } else { 80 };
            if model.len() >= most || (!model.is_empty() && random.random_range(0..3_u32) == 0) {
                let gone = model.swap_remove(random.random_range(0..model.len()));
                assert_eq!(dir::remove(&mut edit, &mut parent, &gone).unwrap().inode, found.inode);
                let again = dir::remove(&mut edit, &mut parent, &gone);
                assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
            }
            let mut name = format!("{index:x}").into_bytes();
            name.resize(name.len() + random.random_range(0..9_usize), b'n');
            dir::insert(&mut edit, &mut parent, &name, found).unwrap();
            model.push(name);
            if parent.is_inline() {
                was_inline_with = was_inline_with.max(model.len());
            }
            if index % 40 == 0 {
                target.inode.links = links_before + model.len() as u16;
                write_loaded(&mut edit, &target).unwrap();
                write_loaded(&mut edit, &parent).unwrap();
                image.verify(&edit);
            }
        }
        assert!(was_inline_with >= 5, "{was_inline_with}");
        assert!(!parent.is_inline(), "the names do not fit inline");
        let other = named(&edit, "file");
        let renamed = EntryTarget { inode: other.number, file_type: EntryType::Regular };
        dir::replace(&mut edit, &mut parent, &model[0], renamed).unwrap();
        assert_eq!(
            lookup(&edit, &parent, &model[0], BrokenIndex::Report).unwrap().inode,
            other.number
        );
        dir::replace(&mut edit, &mut parent, &model[0], found).unwrap();
        target.inode.links = links_before + model.len() as u16;
        write_loaded(&mut edit, &target).unwrap();
        write_loaded(&mut edit, &parent).unwrap();
        image.verify(&edit);
        let listed = debugfs(&image.path, "ls -p /dir").unwrap();
        let used = listed.lines().filter(|line| !line.is_empty() && !line.starts_with("/0/"));
        assert_eq!(used.count(), model.len() + 2);
        let again = Reader::open(image.device.clone()).unwrap();
        assert_eq!(again.lookup(parent.number, b"..").unwrap().inode, InodeNo::ROOT);
    }
}
