//! Sound volumes that e2fsck 1.47.0 reports as damaged: its findings are not used.

use crate::devices::Devices;
use extant_ondisk::InodeNo;
use extant_reader::VolumeRead;

/// The reason not to use the result of e2fsck 1.47.0 for this volume, if there is one.
pub(crate) fn reason(devices: &Devices) -> Result<Option<&'static str>, String> {
    if devices.state().is_none() {
        if devices.journal.is_some() {
            return Ok(Some("it takes a backup superblock, which names no external journal"));
        }
        if !devices.has_backup() {
            return Ok(Some("it finds no other superblock"));
        }
    }
    let volume = devices.open().map_err(|error| format!("not read: {error}"))?;
    if has_symlink_with_value_in_inode(&volume) {
        return Ok(Some("it takes the target of a fast symbolic link for block numbers"));
    }
    Ok(None)
}

/// Whether a fast symbolic link has the value of an extended attribute in an inode of its own, and
/// no attribute block. `i_blocks` counts the value's blocks, and e2fsck takes the link for a slow
/// one. The kernel makes such links too.
fn has_symlink_with_value_in_inode(volume: &impl VolumeRead) -> bool {
    let geometry = volume.geometry();
    let inodes = (1..=geometry.inodes_count).map(InodeNo);
    let mut inodes = inodes.filter_map(|number| volume.inode(number).ok());
    inodes.any(|it| it.is_fast_symlink(geometry) && it.file_acl.0 == 0 && it.blocks > 0)
}

mod tests {
    use super::*;
    use crate::volumes;
    use extant_testkit::{is_root, skip};
    use rustix::fs::XattrFlags;
    use std::sync::Arc;

    #[test]
    fn e2fsck_takes_a_symlink_of_the_kernel_for_damaged() {
        if !is_root() {
            skip!("needs root");
        }
        let kind = volumes::all().into_iter().find(|kind| kind.name == "ea-inode").unwrap();
        let base = match crate::random::fresh(kind, 16 << 20) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        let files = Devices::of(kind, Arc::new(base)).to_files();
        assert_eq!(reason(&files.devices()), Ok(None));
        let mount = files.mount("").unwrap();
        let link = mount.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        rustix::fs::lsetxattr(&link, "trusted.large", &[7; 3000], XattrFlags::empty()).unwrap();
        mount.unmount().unwrap();

        let output = files.e2fsck("-fn").unwrap();
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(found.contains("has illegal block(s)"), "{found}");
        assert!(reason(&files.devices()).unwrap().is_some());
        files.is_clean().expect("such findings are not used");
    }
}
