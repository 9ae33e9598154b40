//! Checks after a power cut.

use std::path::Path;

use extant_testkit::{LoopMount, TreeSnapshot, dumpe2fs_h, tool};

/// The tree as the kernel shows it.
pub(crate) fn mounted(path: &Path) -> Result<TreeSnapshot, String> {
    let mount = LoopMount::new(path, "ro")?;
    TreeSnapshot::of_dir(mount.path())
        .map(|tree| tree.without("lost+found"))
        .map_err(|why| why.to_string())
}

/// Has e2fsck preen a volume that is not clean, as at boot. Returns whether it was like that.
pub(crate) fn preen(path: &Path) -> Result<bool, String> {
    if dumpe2fs_h(path)?["Filesystem state"] == "clean" {
        return Ok(false);
    }
    let done = tool("e2fsck").ok_or("no e2fsck")?.run(["-p", path.to_str().unwrap()]);
    match done.status.code() {
        Some(0 | 1) => Ok(true),
        _ => panic!("{done:?}"),
    }
}
