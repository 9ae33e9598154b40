//! Options of an open volume, each by its effect; verified by debugfs, e2fsck and the kernel.

use extant_device::Device;
use extant_engine::testing::ScratchEdit;
use extant_engine::write::quota;
use extant_engine::{Credentials, Volume, VolumeOptions, XattrSet};
use extant_ondisk::InodeNo;
use extant_ondisk::quota::{QuotaKind, QuotaRecord};
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{LoopMount, TempImage, e2fsck_fn, is_root, skip, tool};
use std::path::Path;
use std::sync::Arc;

const BY: Credentials = Credentials { is_privileged: false, ..Credentials::ROOT };

fn open_live(path: &Path, options: &VolumeOptions) -> Result<Volume, Error> {
    let device = extant_device::FileDeviceOptions::new().write(true).open(path).unwrap();
    Volume::open(Arc::new(device), &Env::threads(), options)
}

#[test]
fn limits_bind_only_whose_option_was_given() {
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
    let by = Credentials { gid: 55, ..BY };
    for (number, (enforced_limits, binds)) in [
        (Some([true, false, false]), false),
        (Some([false; 3]), false),
        (Some([false, true, false]), true),
        (None, true),
    ]
    .into_iter()
    .enumerate()
    {
        let options = VolumeOptions { enforced_limits, ..VolumeOptions::default() };
        let volume = open_live(&image.path(), &options).unwrap();
        let names = [format!("a{number}"), format!("b{number}")];
        let made = names.map(|name| volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &by));
        let refused = matches!(made, [_, Err(Error::QuotaExceeded)]);
        assert_eq!(refused, binds, "{enforced_limits:?}: {made:?}");
        volume.close().unwrap();
        // Counted all the same.
        e2fsck_fn(&image.path()).unwrap();
    }
    let projects =
        VolumeOptions { enforced_limits: Some([false, false, true]), ..VolumeOptions::default() };
    let error = open_live(&image.path(), &projects).unwrap_err().to_string();
    assert!(error.contains("no quota file of projects"), "{error}");
}

/// As many names fit into a directory as with the kernel's `max_dir_size_kb=`, for limits of whole
/// blocks and others.
#[test]
fn directories_grow_as_far_as_the_kernels() {
    if tool("mke2fs").is_none() || !is_root() {
        skip!("a loop mount to compare with needs root and mke2fs");
    }
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "2048"]).unwrap();
    let name = |number: u32| format!("{number:0100}");
    for limit in [1, 3, 4, 7] {
        let dir = format!("kernel{limit}");
        let kernel = LoopMount::new(&image.path(), &format!("max_dir_size_kb={limit}")).unwrap();
        let dir = kernel.path().join(dir);
        std::fs::create_dir(&dir).unwrap();
        let expected =
            (0..500).find(|number| std::fs::write(dir.join(name(*number)), b"").is_err());
        let size = std::fs::metadata(&dir).unwrap().len();
        drop(kernel);
        let options = VolumeOptions { max_dir_size_kb: Some(limit), ..VolumeOptions::default() };
        let volume = open_live(&image.path(), &options).unwrap();
        let ours =
            volume.mkdir(InodeNo::ROOT, format!("ours{limit}").as_bytes(), 0o755, &BY).unwrap();
        let full = (0..500).find(|number| {
            let made = volume.create(ours.number, name(*number).as_bytes(), 0o644, &BY);
            assert!(matches!(made, Ok(_) | Err(Error::NoSpace)), "{made:?}");
            made.is_err()
        });
        // The kernel keeps the index that it has begun for the name which then finds no room; here
        // nothing of that is left.
        let (block, index_and_leaf) = (2048, 4096);
        let size = if size == index_and_leaf { block } else { size };
        assert_eq!(volume.inode(ours.number).unwrap().size, size, "limit {limit}");
        if size == block {
            assert_eq!(full, expected, "limit {limit}");
        }
        assert_eq!(full.is_some(), expected.is_some(), "limit {limit}");
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}

#[test]
fn files_share_attribute_blocks_unless_told_not_to() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for shares_xattrs in [true, false] {
        let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-I", "128"]).unwrap();
        let options = VolumeOptions { shares_xattrs, ..VolumeOptions::default() };
        let volume = open_live(&image.path(), &options).unwrap();
        let [one, two] = [b"one", b"two"].map(|name| {
            let file = volume.create(InodeNo::ROOT, name, 0o644, &BY).unwrap().number;
            volume.set_xattr(file, b"user.same", &[7; 500], XattrSet::Any).unwrap();
            volume.inode(file).unwrap().file_acl
        });
        assert_eq!(one == two, shares_xattrs);
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}
