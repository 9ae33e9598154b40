//! Mapping and directories changed at random, compared with a model in memory, and verified by
//! e2fsck.

mod common;

use common::edited::{Image, Model, compare, named, rng};
use extant_engine::edit::{AllocationRequest, Purpose, write_inode};
use extant_engine::write::{dir, mapping};
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{BlockNo, FileBlock, MAX_FILE_BLOCKS};
use extant_reader::read::dir::lookup;
use extant_reader::read::dir_block::EntryTarget;
use extant_reader::{BrokenIndex, Error, MetadataRead, Reader, VolumeRead};
use extant_testkit::{debugfs, skip, tool};
use proptest::test_runner::TestRng;
use rand::RngExt;
use std::collections::BTreeMap;

/// One file's blocks allocated, marked and taken away at random.
fn mapping_history(options: &[&str], seed: u8, longest_run: u64) {
    let image = Image::new(options, "24M");
    let mut edit = image.edit();
    edit.longest_run = longest_run;
    let mut file = named(&edit, "file");
    let block_size = u64::from(edit.geometry().block_size);
    let mut random = rng(seed);
    let mut model = BTreeMap::new();
    let end = 3000;
    let free_before = edit.free_clusters();
    for step in 0..900 {
        let at = random.random_range(0..end);
        let count = random.random_range(1..40_u64);
        let is_extent_mapped = file.is_extent_mapped();
        match random.random_range(0..10_u32) {
            0..=5 => {
                if model.contains_key(&at) {
                    continue;
                }
                let unwritten = is_extent_mapped && random.random_range(0..3_u32) == 0;
                let state = if unwritten {
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
                match mapping::allocate(&mut edit, &mut file, FileBlock(at), request, state) {
                    Ok(run) => {
                        assert!((1..=count).contains(&run.count));
                        for index in 0..run.count {
                            let block = BlockNo(run.start.0 + index);
                            let is = if unwritten {
                                Model::Unwritten(block)
                            } else {
                                Model::Written(block)
                            };
                            assert_eq!(model.insert(at + index, is), None, "step {step}");
                        }
                    }
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("seed {seed}, step {step}: {error}"),
                }
            }
            6..=7 => {
                let range = FileBlock(at)..FileBlock(at + count * 5);
                let mut from = Some(range.start);
                while let Some(start) = from {
                    from = mapping::remove_step(&mut edit, &mut file, start..range.end, 7).unwrap();
                }
                model.retain(|block, _| !(range.start.0..range.end.0).contains(block));
            }
            _ if is_extent_mapped => {
                let range = FileBlock(at)..FileBlock(at + count);
                let mut from = Some(range.start);
                let state = mapping::ExtentState::Written;
                while let Some(start) = from {
                    match mapping::set_state_step(&mut edit, &mut file, start..range.end, state) {
                        Ok(next) => from = next,
                        Err(error) => panic!("seed {seed}, step {step}: {error}"),
                    }
                }
                for (_, is) in model.range_mut(range.start.0..range.end.0) {
                    if let Model::Unwritten(block) = *is {
                        *is = Model::Written(block);
                    }
                }
            }
            _ => {}
        }
        if step % 100 == 99 {
            compare(&edit, &file, &model, end + 300);
        }
    }
    compare(&edit, &file, &model, end + 300);
    file.inode.size = model.last_key_value().map_or(0, |(block, _)| (block + 1) * block_size);
    write_inode(&mut edit, file.number, &file.inode).unwrap();
    image.verify(&edit);

    // And all of it away again.
    let mut from = Some(FileBlock(0));
    while let Some(start) = from {
        from = mapping::remove_step(&mut edit, &mut file, start..FileBlock(u64::MAX), 50).unwrap();
    }
    file.inode.size = 0;
    assert_eq!(file.blocks, 0, "nothing is charged to an empty file");
    assert_eq!(edit.free_clusters(), free_before, "no block is lost");
    write_inode(&mut edit, file.number, &file.inode).unwrap();
    image.verify(&edit);
}

#[test]
fn a_random_history_of_the_map_agrees_with_its_model_and_with_e2fsck() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, longest_run) in [
        (&["-t", "ext4", "-b", "1024"][..], 3),
        (&["-t", "ext4", "-b", "4096"], u64::MAX),
        (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"], 1),
        (&["-t", "ext2", "-b", "1024"], 5),
        (&["-t", "ext3", "-b", "4096"], 2),
        (&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"], 1),
    ] {
        for seed in 1..4 {
            mapping_history(options, seed, longest_run);
        }
    }
}

fn name_of(random: &mut TestRng, index: u32) -> Vec<u8> {
    let length = random.random_range(1..=3_usize).pow(4);
    let mut name = format!("{index:x}-").into_bytes();
    name.resize(name.len() + length, b'a' + (index % 26) as u8);
    name
}

/// Names put in, looked up, pointed elsewhere and taken out of one directory at random.
fn directory_history(options: &[&str], seed: u8, names: u32) {
    let image = Image::new(options, "40M");
    let mut edit = image.edit();
    let mut parent = named(&edit, "dir");
    let mut target = named(&edit, "target");
    let links_before = target.links;
    let mut random = rng(seed);
    let mut model: Vec<Vec<u8>> = Vec::new();
    let found = EntryTarget { inode: target.number, file_type: EntryType::Regular };
    for index in 0..names {
        if !model.is_empty() && random.random_range(0..4_u32) == 0 {
            let gone = model.swap_remove(random.random_range(0..model.len()));
            assert_eq!(dir::remove(&mut edit, &mut parent, &gone).unwrap().inode, target.number);
            assert!(matches!(
                lookup(&edit, &parent, &gone, BrokenIndex::Report),
                Err(Error::NotFound)
            ));
        }
        let name = name_of(&mut random, index);
        dir::insert(&mut edit, &mut parent, &name, found).unwrap();
        model.push(name);
    }
    for name in &model {
        let seen = lookup(&edit, &parent, name, BrokenIndex::Report).unwrap();
        assert_eq!(seen.inode, target.number, "{}", name.escape_ascii());
    }
    target.inode.links = links_before + model.len() as u16;
    write_inode(&mut edit, target.number, &target.inode).unwrap();
    write_inode(&mut edit, parent.number, &parent.inode).unwrap();
    image.verify(&edit);
    let has_index = parent.flags.contains(InodeFlags::INDEX);
    assert_eq!(has_index, edit.has_dir_index() && names > 100, "{options:?}");
    let listed = debugfs(&image.path, "ls -p /dir").unwrap();
    // Free records show as files of inode 0.
    let used = listed.lines().filter(|line| !line.is_empty() && !line.starts_with("/0/"));
    assert_eq!(used.count(), model.len() + 2);
}

#[test]
fn names_put_in_and_taken_out_agree_with_the_model_and_with_e2fsck() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, names) in [
        (&["-t", "ext4", "-b", "1024"][..], 20_000),
        (&["-t", "ext4", "-b", "4096"], 9000),
        (&["-t", "ext4", "-b", "1024", "-O", "^dir_index"], 600),
        (&["-t", "ext2", "-b", "1024"], 3000),
        (&["-t", "ext3", "-b", "1024", "-O", "^filetype"], 3000),
        (&["-t", "ext4", "-O", "bigalloc"], 3000),
    ] {
        directory_history(options, 7, names);
    }
}

/// Logical block 2^32-2 is the last that ext4 stores; the next is refused, and e2fsck takes a file
/// of that size.
#[test]
fn a_file_ends_before_block_2_to_the_32_less_one() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for block_size in ["1024", "4096"] {
        let image = Image::new(&["-t", "ext4", "-b", block_size], "24M");
        let mut edit = image.edit();
        let mut file = named(&edit, "file");
        let request = AllocationRequest {
            inode: file.number,
            purpose: Purpose::Data,
            goal: None,
            count: 5,
            part: None,
        };
        let state = mapping::ExtentState::Written;
        let last = FileBlock(MAX_FILE_BLOCKS - 1);
        let run = mapping::allocate(&mut edit, &mut file, last, request, state).unwrap();
        assert_eq!(run.count, 1, "no room after the last block");
        let past = FileBlock(MAX_FILE_BLOCKS);
        let refused = mapping::allocate(&mut edit, &mut file, past, request, state);
        assert!(matches!(refused, Err(Error::FileTooLarge)), "{refused:?}");
        file.inode.size = MAX_FILE_BLOCKS * u64::from(edit.geometry().block_size);
        write_inode(&mut edit, file.number, &file.inode).unwrap();
        image.verify(&edit);
        let again = Reader::open(image.device.clone()).unwrap();
        let runs = again.extents(file.number).unwrap().map(Result::unwrap);
        let runs: Vec<_> = runs.filter(|run| !run.is_hole()).collect();
        assert_eq!(runs.len(), 1);
        assert_eq!((runs[0].block, runs[0].physical()), (last, Some(run.start)));
    }
}
