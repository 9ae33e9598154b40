//! The flags of files, as chattr sets them.

use super::credits;
use crate::edit::{Edit, write_inode};
use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::options::DataMode;
use crate::write::dir::is_empty as is_empty_dir;
use crate::write::map_conversion;
use extant_ondisk::inode::{FileType, InodeFlags};
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, IncompatFeatures, InodeNo, MAX_FILE_BLOCKS,
};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{extents, has_blocks};

/// Flags that users may change (`inodes.rst`, "aggregate flags", and direct access, which came
/// later); the kernel handles two more of their own.
const MODIFIABLE: InodeFlags = InodeFlags::from_bits_retain(0x604b_c0ff).union(InodeFlags::DAX);
/// Flags that users may see, and may ask for without effect (`inodes.rst` there).
const VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x604b_dfff).union(InodeFlags::DAX);
/// Formats of files that cannot be accessed directly (`dax.rst`).
const NEVER_DIRECT: InodeFlags = InodeFlags::INLINE_DATA
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::VERITY);
/// Flags that mean something on directories only.
const OF_DIRECTORIES: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::PROJECT_INHERIT);
/// Flags that files have which are neither regular nor directories.
const OF_OTHERS: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// Blocks that one operation forgets, and what their revoke records take in the smallest blocks.
const FORGOTTEN_AT_ONCE: u64 = 512;
const FORGET_CREDITS: u32 = 8;

impl Engine {
    /// Sets the flags of a file that users may set, as chattr does; the others stay. The flags that
    /// it has then.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for an immutable file that stays so, [`Error::NotSupported`] for
    /// flags that the volume or the file cannot have or that mean another format of the file, and
    /// as [`Self::set_xattr`]. A file whose map cannot be changed (flag e: into extents where the
    /// inode has no room for them, into pointers where they would need more than the inode's) is
    /// refused after the rest was set, as the kernel does.
    pub fn set_flags(&self, file: InodeNo, flags: InodeFlags) -> Result<InodeFlags, Error> {
        self.record_corruption(self.change_flags(file, flags))
    }

    fn change_flags(&self, file: InodeNo, flags: InodeFlags) -> Result<InodeFlags, Error> {
        self.wait_for_thaw()?;
        let shared = self.inodes.get(file);
        let mut inode = shared.write(self, LockClass::File)?;
        let new = self.flags_after(&inode, flags)?;
        let changes_map = (new ^ flags).contains(InodeFlags::EXTENTS);
        let changes_journalling = (new ^ inode.flags).contains(InodeFlags::JOURNAL_DATA);
        if changes_map || changes_journalling {
            // Delayed data have blocks reserved for the map as it is, and bypass the journal.
            self.write_back(&shared, &mut inode);
            shared.set_unsynced();
        }
        if changes_journalling && !new.contains(InodeFlags::JOURNAL_DATA) {
            self.stop_journalling(&inode)?;
        }
        if new != inode.flags {
            let mut edit = self.edit(credits::INODE)?;
            inode.inode.flags = new;
            inode.inode.ctime = edit.now();
            inode.inode.count_change();
            write_inode(&mut edit, file, &inode.inode)?;
            edit.finish();
        }
        if changes_map {
            return self.change_map(&mut inode);
        }
        Ok(new)
    }

    /// Changes how a file is mapped into the other form.
    fn change_map(&self, file: &mut LoadedInode) -> Result<InodeFlags, Error> {
        const REFUSED: Error = Error::NotSupported("changing the block map of this file (flag e)");
        let most = self.journal.max_credits();
        let is_mapped = matches!(file.file_type(), FileType::Regular | FileType::Directory);
        if !is_mapped || file.is_inline() || file.is_encrypted() {
            return Err(REFUSED);
        }
        let Some(plan) = map_conversion::plan(self, file)? else { return Err(REFUSED) };
        let credits = credits::INODE + credits::quotas(self) + plan.map_blocks() * credits::BITMAP;
        if credits > most {
            return Err(REFUSED);
        }
        let mut edit = self.edit(credits)?;
        let mut changed = file.clone();
        map_conversion::apply(&mut edit, &mut changed, plan)?;
        changed.inode.ctime = edit.now();
        write_inode(&mut edit, file.number, &changed.inode)?;
        edit.finish();
        *file = changed;
        Ok(file.flags)
    }

    /// Makes the data of a file bypass the journal from now on: the journal's copies are
    /// checkpointed and forgotten, so that neither recovery nor a frame writes them again.
    fn stop_journalling(&self, file: &LoadedInode) -> Result<(), Error> {
        self.journal.checkpoint()?;
        if self.data == DataMode::Journal || file.is_inline() || !has_blocks(self, file) {
            return Ok(());
        }
        let runs = extents(self, file.clone(), FileBlock(0), FileBlock(MAX_FILE_BLOCKS));
        for run in runs {
            let run = run?;
            let Some(start) = run.physical() else { continue };
            for at in (0..run.len).step_by(FORGOTTEN_AT_ONCE as usize) {
                let count = FORGOTTEN_AT_ONCE.min(run.len - at);
                let mut edit = self.edit(FORGET_CREDITS)?;
                (0..count).try_for_each(|index| edit.forget(BlockNo(start.0 + at + index)))?;
            }
        }
        Ok(())
    }

    fn flags_after(&self, file: &LoadedInode, wanted: InodeFlags) -> Result<InodeFlags, Error> {
        let geometry = self.geometry();
        if !wanted.difference(file.flags | VISIBLE).is_empty() {
            return Err(Error::NotSupported("flag unknown to ext4 or not changeable"));
        }
        let allowed = match file.file_type() {
            FileType::Directory => MODIFIABLE,
            FileType::Regular => MODIFIABLE - OF_DIRECTORIES,
            _ => OF_OTHERS,
        };
        if !(wanted & MODIFIABLE & !file.flags).difference(allowed).is_empty() {
            return Err(Error::NotSupported("flag of directories on another file"));
        }
        let changed = (file.flags ^ wanted) & (allowed - InodeFlags::EXTENTS);
        if changed.contains(InodeFlags::JOURNAL_DATA)
            && wanted.contains(InodeFlags::JOURNAL_DATA)
            && !geometry.has_compat(CompatFeatures::HAS_JOURNAL)
        {
            return Err(Error::NotSupported("a journal for data on a volume without one"));
        }
        if changed.contains(InodeFlags::CASEFOLD) {
            if !geometry.has_incompat(IncompatFeatures::CASEFOLD) {
                return Err(Error::NotSupported("case-insensitive names on this volume"));
            }
            if !is_empty_dir(self, file)? {
                return Err(Error::NotEmpty);
            }
        }
        let new = file.flags ^ changed;
        if changed.contains(InodeFlags::DAX)
            && new.contains(InodeFlags::DAX)
            && file.file_type() == FileType::Regular
            && new.intersects(NEVER_DIRECT)
        {
            return Err(Error::NotSupported("direct access to data of this format"));
        }
        if file.flags.contains(InodeFlags::IMMUTABLE)
            && new.contains(InodeFlags::IMMUTABLE)
            && !changed.is_empty()
        {
            return Err(Error::NotPermitted(file.number));
        }
        Ok(new)
    }
}
