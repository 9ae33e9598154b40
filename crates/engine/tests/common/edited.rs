//! Images changed through a scratch edit and verified by e2fsck.

use extant_device::Device;
use extant_engine::testing::ScratchEdit;
use extant_ondisk::{BlockNo, FileBlock, InodeNo};
use extant_reader::read::dir::lookup;
use extant_reader::read::inode::load;
use extant_reader::read::mapping::{MappingTarget, map};
use extant_reader::{BrokenIndex, LoadedInode, Reader};
use extant_testkit::{Scratch, e2fsck_fn, mke2fs, tool};
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// An image of mke2fs with `file`, `target` and a directory `dir` to change, and its bytes in
/// memory.
pub(crate) struct Image {
    _scratch: Scratch,
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<dyn Device>,
}

impl Image {
    pub(crate) fn new(options: &[&str], size: &str) -> Self {
        Self::with_files(options, size, 0)
    }

    /// With files `f0`, `f1` ... of 40 KiB besides.
    pub(crate) fn with_files(options: &[&str], size: &str, files: u32) -> Self {
        let scratch = Scratch::new();
        let path = scratch.join("disk.img");
        let text = path.to_str().expect("scratch paths are UTF-8");
        let tree = scratch.join("tree");
        std::fs::create_dir_all(tree.join("dir")).unwrap();
        std::fs::write(tree.join("file"), b"").unwrap();
        std::fs::write(tree.join("target"), b"many names").unwrap();
        for at in 0..files {
            std::fs::write(tree.join(format!("f{at}")), vec![at as u8 + 1; 40 << 10]).unwrap();
        }
        let source = tree.to_str().expect("scratch paths are UTF-8");
        mke2fs([&["-q", "-F", "-d", source], options, &[text, size]].concat()).unwrap();
        if options.iter().any(|option| option.contains("quota")) {
            // mke2fs 1.47.0 counts quotas before it copies the tree.
            let fixed = tool("e2fsck").unwrap().run(["-fy", text]);
            assert_eq!(fixed.status.code(), Some(1), "{fixed:?}");
        }
        let device = super::memory(&std::fs::read(&path).unwrap());
        Self { _scratch: scratch, path, device }
    }

    pub(crate) fn edit(&self) -> ScratchEdit {
        ScratchEdit::new(Reader::open(self.device.clone()).unwrap())
    }

    /// Writes the changes to the image; e2fsck finds nothing wrong with it.
    pub(crate) fn verify(&self, edit: &ScratchEdit) {
        self.store(edit);
        e2fsck_fn(&self.path).unwrap();
    }

    /// Writes the changes to the image.
    pub(crate) fn store(&self, edit: &ScratchEdit) {
        edit.write_out(self.device.as_ref()).unwrap();
        let mut bytes = vec![0; self.device.size() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        std::fs::write(&self.path, bytes).unwrap();
    }
}

/// A file of the root directory.
pub(crate) fn named(edit: &ScratchEdit, name: &str) -> LoadedInode {
    let root = load(edit, InodeNo::ROOT).unwrap();
    let found = lookup(edit, &root, name.as_bytes(), BrokenIndex::Report).unwrap();
    load(edit, found.inode).unwrap()
}

pub(crate) fn rng(seed: u8) -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32])
}

/// The expected contents of a block of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Model {
    Written(BlockNo),
    Unwritten(BlockNo),
}

pub(crate) fn compare(
    edit: &ScratchEdit,
    file: &LoadedInode,
    model: &BTreeMap<u64, Model>,
    end: u64,
) {
    let mut found = BTreeMap::new();
    let mut next = FileBlock(0);
    while next.0 < end {
        let run = map(edit, file, next).unwrap();
        for index in 0..run.len.min(end - next.0) {
            match run.target {
                MappingTarget::Hole => {}
                MappingTarget::Written(start) => {
                    found.insert(next.0 + index, Model::Written(BlockNo(start.0 + index)));
                }
                MappingTarget::Unwritten(start) => {
                    found.insert(next.0 + index, Model::Unwritten(BlockNo(start.0 + index)));
                }
            }
        }
        next = run.end();
    }
    assert!(found == *model, "map and model differ");
}
