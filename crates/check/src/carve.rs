//! Runs of blocks that are in use by the bitmaps and that nothing claims become files in lost+found
//! where the options ask for it (`-E carve`).

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::FileMap;
use crate::store::CheckError;
use crate::tables::{Kind, Mark};
use extant_ondisk::dirent::FileType;
use extant_ondisk::extent::{Extent, MAX_WRITTEN_LEN};
use extant_ondisk::{BlockNo, FileBlock, GroupNo};
use std::ops::Range;

/// Mode of the files.
const MODE: u16 = 0o100_600;

impl Check<'_> {
    /// Proposes a file for each run of the window.
    pub(crate) fn carve(&self) -> Result<(), CheckError> {
        self.free_released()?;
        let mut runs: Vec<Range<u64>> = Vec::new();
        for group in self.window.groups.clone().map(GroupNo) {
            for run in self.unclaimed_in(group)? {
                match runs.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
            }
        }
        for run in runs {
            self.carve_run(&run)?;
            if self.must_restart() {
                break;
            }
        }
        Ok(())
    }

    fn carve_run(&self, run: &Range<u64>) -> Result<(), CheckError> {
        let count = run.end - run.start;
        let finding = Finding::new(Code::UnclaimedRun).block(BlockNo(run.start)).found(count);
        if !self.should_fix(finding)? {
            return Ok(());
        }
        let Some(lost_found) = self.lost_found() else { return Ok(()) };
        let Some(ino) = self.free_inode() else {
            if self.extend_tables()? {
                self.need_restart();
            }
            return Ok(());
        };
        let Some((mut record, mut inode)) = self.fresh_inode(ino, MODE) else { return Ok(()) };
        inode.size = count << self.geometry.block_bits();
        let first = self.blocks.cluster_of(BlockNo(run.start)).0;
        let last = self.blocks.cluster_of(BlockNo(run.end - 1)).0;
        self.blocks.claim(first..last + 1, &self.budget);
        if !self.write_map(ino, &mut inode, &FileMap::default(), &map_of(run))? {
            return Ok(());
        }
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(ino, &mut record);
        self.inodes.note(ino, Kind::Regular, Mark::USED, 1);
        let name = format!("blocks-{}-{count}", run.start);
        if self.add_entry(lost_found, name.as_bytes(), ino, FileType::Regular)? {
            self.inodes.count_name(ino);
        }
        Ok(())
    }
}

fn map_of(run: &Range<u64>) -> FileMap {
    let step = u64::from(MAX_WRITTEN_LEN);
    let extents = (run.start..run.end).step_by(step as usize).map(|start| Extent {
        block: FileBlock(start - run.start),
        len: (run.end - start).min(step) as u32, // at most the step
        start: BlockNo(start),
        is_unwritten: false,
    });
    FileMap { extents: extents.collect(), ..FileMap::default() }
}
