//! Images changed through a scratch edit and judged by e2fsck.

use extant_device::Device;
use extant_ondisk::InodeNo;
use extant_testkit::{Scratch, e2fsck_fn, mke2fs};
use extant_volume::read::dir::lookup;
use extant_volume::read::inode::load;
use extant_volume::testing::ScratchEdit;
use extant_volume::{BrokenIndex, LoadedInode, Volume};
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::path::PathBuf;
use std::sync::Arc;

/// An image of mke2fs with `file`, `target` and a directory `dir` to change, and its bytes in memory.
pub(crate) struct Image {
    _scratch: Scratch,
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<dyn Device>,
}

impl Image {
    pub(crate) fn new(options: &[&str], size: &str) -> Self {
        let scratch = Scratch::new();
        let path = scratch.join("disk.img");
        let text = path.to_str().expect("scratch paths are UTF-8");
        let tree = scratch.join("tree");
        std::fs::create_dir_all(tree.join("dir")).unwrap();
        std::fs::write(tree.join("file"), b"").unwrap();
        std::fs::write(tree.join("target"), b"many names").unwrap();
        let source = tree.to_str().expect("scratch paths are UTF-8");
        mke2fs([&["-q", "-F", "-d", source], options, &[text, size]].concat()).unwrap();
        let device = super::memory(&std::fs::read(&path).unwrap());
        Self { _scratch: scratch, path, device }
    }

    pub(crate) fn edit(&self) -> ScratchEdit {
        ScratchEdit::new(Volume::open(self.device.clone()).unwrap())
    }

    /// Writes the changes to the image; e2fsck finds nothing wrong with it.
    pub(crate) fn judge(&self, edit: &ScratchEdit) {
        edit.write_out(self.device.as_ref()).unwrap();
        let mut bytes = vec![0; self.device.size() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        std::fs::write(&self.path, bytes).unwrap();
        e2fsck_fn(&self.path).unwrap();
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
