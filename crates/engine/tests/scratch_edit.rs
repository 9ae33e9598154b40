//! e2fsck agrees with what the scratch edit allocates and frees.

use extant_device::{Device, MemoryDevice};
use extant_engine::edit::{AllocationRequest, Edit, Purpose};
use extant_engine::testing::ScratchEdit;
use extant_ondisk::{BlockNo, InodeNo};
use extant_reader::{Error, Reader};
use extant_testkit::{Scratch, e2fsck_fn, mke2fs, skip, tool};
use std::sync::Arc;

const OPTION_SETS: [&[&str]; 3] =
    [&["-t", "ext4"], &["-t", "ext2", "-b", "1024"], &["-t", "ext4", "-O", "bigalloc"]];

#[test]
fn all_space_is_given_out_and_taken_back_as_e2fsck_sees_it() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in OPTION_SETS {
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        let path = image.to_str().expect("scratch paths are UTF-8");
        mke2fs([&["-q", "-F"], options, &[path, "40M"]].concat()).unwrap();
        let mut bytes = std::fs::read(&image).unwrap();
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes.len() as u64));
        device.write_at(0, &bytes).unwrap();

        let mut edit = ScratchEdit::new(Reader::open(device.clone()).unwrap());
        let free_before = edit.free_clusters();
        let request = AllocationRequest {
            inode: InodeNo::ROOT,
            purpose: Purpose::Data,
            goal: Some(BlockNo(9000)),
            count: 1000,
            part: None,
        };
        let mut runs = Vec::new();
        let full = loop {
            match edit.allocate(request) {
                Ok(run) => runs.push(run),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full}");
        assert_eq!(edit.free_clusters(), 0, "{options:?}");
        for run in runs {
            edit.free(run, Purpose::Data).unwrap();
        }
        assert_eq!(edit.free_clusters(), free_before, "{options:?}");
        edit.write_out(device.as_ref()).unwrap();
        device.read_at(0, &mut bytes).unwrap();
        std::fs::write(&image, bytes).unwrap();
        e2fsck_fn(&image).unwrap();
    }
}
