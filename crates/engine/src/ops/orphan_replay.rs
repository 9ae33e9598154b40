//! Orphan replay: files whose deletion or truncation a crash has interrupted.

use crate::edit::write_inode;
use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::write::orphans;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::{Flaw, InodeNo, Location};
use extant_reader::read::inode;
use extant_reader::read::mapping::has_blocks;
use extant_reader::{Error, VolumeRead};

impl Engine {
    /// Ends what a crash has cut off: deletes orphans without links, and cuts the others off at
    /// their size. Broken orphans are recorded, and the inodes left as they are: they need the
    /// checker, and the superblock records the error.
    pub(crate) fn finish_orphans(&self) -> Result<(), Error> {
        let all = self.orphans.lock().all();
        for number in all {
            if self.health.is_read_only() {
                return Ok(());
            }
            match self.record_corruption(self.finish_orphan(number)) {
                Err(error) if error.is_corruption() && !self.health.is_read_only() => {
                    let mut edit = self.edit(orphans::CREDITS)?;
                    self.orphans.lock().remove(&mut edit, number)?;
                    edit.finish();
                }
                Err(error) if error.is_corruption() => return Ok(()),
                other => other?,
            }
        }
        if self.health.is_read_only() || !self.orphans.lock().is_broken() {
            return Ok(());
        }
        let mut edit = self.edit(orphans::CREDITS)?;
        self.orphans.lock().mend(&mut edit)?;
        edit.finish();
        Ok(())
    }

    pub(super) fn finish_orphan(&self, number: InodeNo) -> Result<(), Error> {
        self.check_in_use(number)?;
        let file = self.inodes.get(number);
        let mut locked = file.write_with(LockClass::File, |_| inode::load_any(self, number))?;
        if locked.inode.file_type().is_none() {
            return Err(Flaw::bad_value("i_mode", locked.mode).at(Location::Inode(number)).into());
        }
        let mut edit = self.edit(self.delete_credits(&locked))?;
        if locked.links == 0 {
            return self.delete(edit, locked, ());
        }
        if has_blocks(self, &locked) {
            self.cut(&mut edit, &mut locked, || Ok(()))?;
        }
        self.orphans.lock().remove(&mut edit, number)?;
        write_inode(&mut edit, number, &locked.inode)?;
        edit.finish();
        Ok(())
    }

    /// Whether an orphan's inode is in use according to its group: a free one is not freed again.
    fn check_in_use(&self, number: InodeNo) -> Result<(), Error> {
        let place = self.geometry().inode_place(number);
        let (group, index) = place.ok_or(Error::NoSuchInode(number))?;
        let bits = self.bitmap(group, BitmapKind::Inode)?;
        if !bitmap::test(&bits, index) {
            let flaw = Flaw::bad_value("orphan that is not in use", number.0);
            return Err(flaw.at(Location::InodeBitmap(group)).into());
        }
        Ok(())
    }
}
