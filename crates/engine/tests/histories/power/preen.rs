//! The blocks that `e2fsck -p` 1.47.0 leaves in use when it clears orphaned inodes.
//!
//! It releases the attribute block of an orphaned inode only if the inode maps blocks: not that of
//! an inode with inline data, a fast symbolic link or a special file. It never releases the inodes
//! that hold values of an orphaned inode's attributes. A volume that the kernel shut down shows the
//! same, and the kernel's own recovery leaves nothing.
//!
//! Where it changed the usage of a quota, it writes the quota files again. The blocks that they no
//! longer need are freed in the bitmap and in the descriptor; the count in the superblock stays.

use crate::devices::Devices;
use extant_device::Device;
use extant_ondisk::inode::{FileType, Inode, InodeFlags, SECTOR};
use extant_ondisk::{Geometry, InodeNo};
use extant_reader::{Error, VolumeRead};
use std::collections::BTreeSet;

/// The blocks that `e2fsck -p` may have left in use.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Left {
    /// Attribute blocks of cleared inodes.
    blocks: BTreeSet<u64>,
    /// Inodes that hold values of attributes, of whichever inode.
    inodes: BTreeSet<u32>,
    /// The blocks that quota files lost: the superblock counts them as in use.
    from_quotas: u64,
}

impl Left {
    /// The attribute blocks of the inodes that `e2fsck -p` says it cleared, if they map no blocks;
    /// the inodes with values of attributes; and the blocks that quota files lost. Nothing if it
    /// cleared no inode. The volume is given as e2fsck found it and as it left it.
    pub(super) fn by(found: &Devices, left: &Devices, said: &str) -> Result<Self, String> {
        let orphans: Vec<InodeNo> = said
            .lines()
            .filter_map(|line| line.split_once("Clearing orphaned inode ")?.1.split(' ').next())
            .filter_map(|number| number.parse().ok().map(InodeNo))
            .collect();
        if orphans.is_empty() {
            return Ok(Self::default());
        }
        let open = |devices: &Devices| devices.open().map_err(|error| format!("not read: {error}"));
        let volume = open(found)?;
        let mut blocks = BTreeSet::new();
        for number in orphans {
            let inode =
                stored_inode(&volume, number).map_err(|error| format!("{number:?}: {error}"))?;
            if !maps_blocks(&inode, volume.geometry()) && inode.file_acl.0 != 0 {
                blocks.insert(inode.file_acl.0);
            }
        }
        let inodes = (1..=volume.geometry().inodes_count).filter(|number| {
            let inode = stored_inode(&volume, InodeNo(*number));
            inode.is_ok_and(|inode| inode.flags.contains(InodeFlags::EA_INODE))
        });
        let in_quotas = |volume| quota_blocks(volume).map_err(|error| format!("quota: {error}"));
        let from_quotas = in_quotas(&volume)?.saturating_sub(in_quotas(&open(left)?)?);
        Ok(Self { blocks, inodes: inodes.collect(), from_quotas })
    }

    /// Whether `e2fsck -fn` finds such blocks and inodes in use, and nothing else.
    pub(super) fn is_all_of(&self, found: &str) -> bool {
        let is_usual = |line: &str| {
            let is_pass = line.starts_with("Pass ") && line.contains(": ");
            let is_summary = line.contains(" files (") && line.ends_with(" blocks");
            let is_warning = line.ends_with("WARNING: Filesystem still has errors **********");
            let is_answer = line == "Fix? no" || line == "Connect to /lost+found? no";
            // The usage that quotas count follows from the blocks.
            let is_quota = line.starts_with("Update quota info for quota type ");
            line.is_empty() || is_answer || is_pass || is_summary || is_warning || is_quota
        };
        let mut findings = found.lines().filter(|line| !is_usual(line)).peekable();
        findings.peek().is_some() && findings.all(|line| self.has(line))
    }

    fn has(&self, finding: &str) -> bool {
        if let Some(number) = finding.strip_prefix("Unattached inode ") {
            return number.parse().is_ok_and(|number| self.inodes.contains(&number));
        }
        if let Some(rest) = finding.strip_prefix("Extended attribute block ") {
            // Another inode shares it.
            let block = rest.split_once(" has reference count ").map(|(block, _)| block);
            return block
                .and_then(|block| block.parse().ok())
                .is_some_and(|it| self.blocks.contains(&it));
        }
        if let Some(counts) = finding.strip_prefix("Free blocks count wrong (") {
            let counts = counts.trim_end_matches(").").split_once(", counted=");
            let count = |text: &str| text.parse::<u64>().ok();
            let missing = counts.and_then(|(is, counted)| count(counted)?.checked_sub(count(is)?));
            return self.from_quotas > 0 && missing == Some(self.from_quotas);
        }
        let blocks = finding.strip_prefix("Block bitmap differences: ").and_then(freed);
        blocks.is_some_and(|blocks| blocks.is_subset(&self.blocks))
    }
}

/// An inode that may have no name; `VolumeRead::inode` gives those that have one.
fn stored_inode(volume: &impl VolumeRead, number: InodeNo) -> Result<Inode, Error> {
    let geometry = volume.geometry();
    let (group, index) = geometry.inode_place(number).ok_or(Error::NoSuchInode(number))?;
    let mut record = vec![0; usize::from(geometry.inode_size)];
    let table = volume.group_desc(group)?.inode_table.0 * u64::from(geometry.block_size);
    volume.device().read_at(table + u64::from(index) * record.len() as u64, &mut record)?;
    Ok(Inode::decode(&record, number, geometry)?)
}

/// The blocks that the quota files use.
fn quota_blocks(volume: &impl VolumeRead) -> Result<u64, Error> {
    let superblock = volume.superblock();
    let files =
        [superblock.usr_quota_inode, superblock.grp_quota_inode, superblock.prj_quota_inode];
    let sectors_per_block = u64::from(volume.geometry().block_size) / SECTOR;
    let blocks_of = |file| Ok(stored_inode(volume, file)?.blocks / sectors_per_block);
    files.into_iter().flatten().map(blocks_of).sum()
}

/// Whether an inode maps blocks, as a file, a directory and a long symbolic link do.
fn maps_blocks(inode: &Inode, geometry: &Geometry) -> bool {
    match inode.file_type() {
        _ if inode.is_inline() => false,
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => !inode.is_fast_symlink(geometry),
        _ => false,
    }
}

/// The blocks that a list of differences has as in use and not used: ` -1171 -(1180--1182)`. `None`
/// where a block is to be marked.
fn freed(list: &str) -> Option<BTreeSet<u64>> {
    let mut blocks = BTreeSet::new();
    for word in list.split_whitespace() {
        let range = word.strip_prefix('-')?;
        match range.strip_prefix('(').and_then(|range| range.strip_suffix(')')) {
            Some(range) => {
                let (first, last) = range.split_once("--")?;
                blocks.extend(first.parse::<u64>().ok()?..=last.parse().ok()?);
            }
            None => drop(blocks.insert(range.parse().ok()?)),
        }
    }
    Some(blocks)
}

mod tests {
    use super::*;
    use crate::volumes;
    use extant_testkit::{Flush, is_root, tool};
    use rustix::fs::XattrFlags;
    use std::fs::File;
    use std::process::Command;
    use std::sync::Arc;

    #[test]
    fn only_the_blocks_that_were_left_are_allowed() {
        let left = Left { blocks: [1171, 1180, 1181].into(), inodes: [14].into(), from_quotas: 2 };
        let frame = |line: &str| {
            format!("Pass 5: Checking group summary information\n{line}\nFix? no\n\n\n")
        };
        for line in [
            "Block bitmap differences:  -1171",
            "Block bitmap differences:  -1171 -(1180--1181)",
            "Extended attribute block 1180 has reference count 3, should be 2.  Fix? no",
            "Unattached inode 14\nConnect to /lost+found? no",
            "Free blocks count wrong (14028, counted=14030).",
        ] {
            assert!(left.is_all_of(&frame(line)), "{line}");
        }
        for line in [
            "",
            "Block bitmap differences:  -1172",
            "Block bitmap differences:  +1171",
            "Block bitmap differences:  -1171 -(1180--1182)",
            "Extended attribute block 1182 has reference count 3, should be 2.  Fix? no",
            "Inode bitmap differences:  -12",
            "Free blocks count wrong (14028, counted=14029).",
            "Free blocks count wrong (14030, counted=14028).",
            "Free blocks count wrong for group #0 (6992, counted=6994).",
        ] {
            assert!(!left.is_all_of(&frame(line)), "{line}");
        }
    }

    /// The kernel deletes files that are held open, with a large attribute each, and is shut down.
    /// The report of e2fsck then, the errors that it may leave, and those that it leaves.
    fn preened_after_kernel(kind: &str, value: usize) -> Option<(String, Left, String)> {
        if !is_root() || tool("xfs_io").is_none() || tool("mkfifo").is_none() {
            extant_testkit::skipped("needs root, xfs_io and mkfifo");
            return None;
        }
        let kind = volumes::all().into_iter().find(|known| known.name == kind).unwrap();
        let base = match crate::random::fresh(kind, 16 << 20) {
            Ok(base) => base,
            Err(why) => {
                extant_testkit::skipped(why);
                return None;
            }
        };
        let files = Devices::of(kind, Arc::new(base)).to_files();
        let mount = files.mount("").unwrap();
        let at = |name: &str| mount.path().join(name);
        std::fs::create_dir(at("directory")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        std::fs::write(at("file"), vec![7; 3000]).unwrap();
        let names = ["directory", "fifo", "file"];
        for (number, name) in (0..).zip(names) {
            // Different values: the kernel shares what is alike.
            let value = vec![number; value];
            rustix::fs::lsetxattr(at(name), "trusted.large", &value, XattrFlags::empty()).unwrap();
        }
        let held =
            names.map(|name| File::options().read(true).write(name == "fifo").open(at(name)));
        let held = held.map(Result::unwrap);
        std::fs::remove_dir(at("directory")).unwrap();
        std::fs::remove_file(at("fifo")).unwrap();
        std::fs::remove_file(at("file")).unwrap();
        mount.shut_down(Flush::Log).unwrap();
        drop(held);
        mount.unmount().unwrap();

        let before = files.copied().unwrap();
        let preened = files.e2fsck("-p").unwrap();
        let said = String::from_utf8_lossy(&preened.stdout).into_owned();
        assert_eq!(preened.status.code(), Some(0), "{said}");
        let left = Left::by(&before.devices(), &files.devices(), &said).unwrap();
        let found = files.is_clean().expect_err("e2fsck 1.47.0 leaves blocks or inodes");
        // The kernel's recovery leaves nothing.
        before.mount("").unwrap().unmount().unwrap();
        before.is_clean().unwrap();
        Some((said, left, found))
    }

    #[test]
    fn e2fsck_leaves_attribute_blocks_of_orphans_of_the_kernel_too() {
        let Some((said, left, found)) = preened_after_kernel("inline-data", 400) else { return };
        assert_eq!(left.blocks.len(), 2, "the directory's and the FIFO's, not the file's: {said}");
        assert!(left.inodes.is_empty(), "{left:?}");
        assert!(left.is_all_of(&found), "{left:?}: {found}");
    }

    #[test]
    fn e2fsck_leaves_values_in_inodes_of_orphans_of_the_kernel_too() {
        let Some((_, left, found)) = preened_after_kernel("ea-inode", 3000) else { return };
        assert_eq!(left.inodes.len(), 3, "{left:?}");
        assert!(left.is_all_of(&found), "{left:?}: {found}");
    }
}
