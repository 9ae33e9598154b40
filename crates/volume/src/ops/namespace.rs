//! Names: making files and directories, and taking them away.

use super::{Creator, credits};
use crate::alloc::InodeRequest;
use crate::edit::{Edit, EditInodes, Limits, Usage, write_inode, write_loaded, write_new_inode};
use crate::error::Error;
use crate::live::edit::LiveEdit;
use crate::live::inodes::LockAs;
use crate::open::BrokenIndex;
use crate::read::dir::{Found, lookup};
use crate::read::inode::LoadedInode;
use crate::read::xattr::{self, AclKind};
use crate::volume::Volume;
use crate::write::acl::Inherited;
use crate::write::xattr::release_all;
use crate::write::{dir, mapping};
use extant_ondisk::dirent::{FileType as EntryType, MAX_NAME_LEN};
use extant_ondisk::inode::{FileType, InodeFlags, MANY_LINKS};
use extant_ondisk::{FileBlock, InodeNo, MAX_FILE_BLOCKS, RoCompatFeatures};

/// Links that a file may have, as the kernel has it.
pub(super) const MAX_LINKS: u16 = 65_000;

/// Refuses what is no name of a file.
fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > MAX_NAME_LEN {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("an empty name, or one with a slash or a zero byte"));
    }
    Ok(())
}

/// Refuses `.` and `..`, which are not made, taken away or renamed.
fn check_own_name(name: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    if matches!(name, b"." | b"..") {
        return Err(Error::Invalid("the names . and .. stay"));
    }
    Ok(())
}

/// Whether names may be put into the directory: it is one, still there, and not immutable.
fn check_takes_names(dir: &LoadedInode) -> Result<(), Error> {
    dir.as_dir()?;
    if dir.links == 0 {
        return Err(Error::NotFound);
    }
    if dir.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted(dir.number));
    }
    if dir.is_encrypted() {
        return Err(Error::Encrypted(dir.number));
    }
    Ok(())
}

/// Whether names may be taken out too.
fn check_gives_names(dir: &LoadedInode) -> Result<(), Error> {
    check_takes_names(dir)?;
    if dir.flags.contains(InodeFlags::APPEND) {
        return Err(Error::NotPermitted(dir.number));
    }
    Ok(())
}

/// Whether the flags of a file let its links be changed.
fn check_links_change(file: &LoadedInode) -> Result<(), Error> {
    if file.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(Error::NotPermitted(file.number));
    }
    Ok(())
}

/// The type as a record of a directory says it.
pub(super) fn entry_type(file_type: FileType) -> EntryType {
    match file_type {
        FileType::Regular => EntryType::Regular,
        FileType::Directory => EntryType::Directory,
        FileType::CharDevice => EntryType::CharDevice,
        FileType::BlockDevice => EntryType::BlockDevice,
        FileType::Fifo => EntryType::Fifo,
        FileType::Socket => EntryType::Socket,
        FileType::Symlink => EntryType::Symlink,
    }
}

/// Gives a new file what it inherits, a directory its first block, and puts it under its name.
fn fill(
    edit: &mut LiveEdit<'_>,
    parent: &mut LoadedInode,
    name: &[u8],
    new: &mut LoadedInode,
    inherited: &Inherited,
) -> Result<(), Error> {
    // Of what the record held before nothing is left: attributes, the time of deletion.
    write_new_inode(edit, new.number, &new.inode)?;
    inherited.give(edit, new)?;
    if new.is_dir() {
        dir::create(edit, new, parent.number)?;
    }
    let found = Found { inode: new.number, file_type: entry_type(new.file_type()) };
    dir::insert(edit, parent, name, found)
}

/// The directory changed now.
fn touch(edit: &LiveEdit<'_>, dir: &mut LoadedInode) {
    let now = edit.now();
    (dir.inode.mtime, dir.inode.ctime) = (now, now);
}

impl Volume {
    /// Whether another subdirectory may be made in `dir`.
    fn check_takes_subdir(&self, dir: &LoadedInode) -> Result<(), Error> {
        let may_lose_count = self.geometry().has_ro_compat(RoCompatFeatures::DIR_NLINK)
            && dir.flags.contains(InodeFlags::INDEX);
        if dir.links >= MAX_LINKS && !may_lose_count {
            return Err(Error::TooManyLinks);
        }
        Ok(())
    }

    /// Makes an empty regular file. `permissions` are the mode's low twelve bits, less those of the umask.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] where the directory was removed, [`Error::NotADirectory`], [`Error::NameTooLong`],
    /// [`Error::Invalid`], [`Error::NoSpace`], [`Error::NotPermitted`], [`Error::Encrypted`], [`Error::ReadOnly`], something
    /// broken on the way, or the journal or device failed.
    pub fn create(
        &self,
        dir: InodeNo,
        name: &[u8],
        permissions: u16,
        by: &Creator,
    ) -> Result<LoadedInode, Error> {
        self.make(dir, name, (FileType::Regular, permissions), by)
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    /// As [`Self::create`], and [`Error::TooManyLinks`].
    pub fn mkdir(
        &self,
        dir: InodeNo,
        name: &[u8],
        permissions: u16,
        by: &Creator,
    ) -> Result<LoadedInode, Error> {
        self.make(dir, name, (FileType::Directory, permissions), by)
    }

    fn make(
        &self,
        dir: InodeNo,
        name: &[u8],
        kind: (FileType, u16),
        by: &Creator,
    ) -> Result<LoadedInode, Error> {
        check_name(name)?;
        let is_dir = kind.0 == FileType::Directory;
        self.with_space(|| {
            let parent = self.live()?.inodes.get(dir);
            let mut parent = parent.write(self, LockAs::Dir)?;
            check_takes_names(&parent)?;
            match lookup(self, &parent, name, BrokenIndex::Report) {
                Ok(_) => return Err(Error::Exists),
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
            if is_dir {
                self.check_takes_subdir(&parent)?;
            }
            let default = xattr::acl(self, &parent, AclKind::Default)?;
            let credits = credits::INODE_NUMBER
                + credits::insert_name(&parent)
                + if is_dir { credits::map_block(&parent) } else { 0 }
                + if default.is_some() { credits::XATTR_BLOCK } else { 0 };
            let mut edit = self.edit(credits)?.privileged(by.is_privileged);
            let is_top = dir == InodeNo::ROOT || parent.flags.contains(InodeFlags::TOPDIR);
            let number = edit.allocate_inode_for(InodeRequest { parent: dir, is_dir, is_top })?;
            let made =
                self.new_inode(&edit, number, &parent.inode, kind, by).and_then(|mut new| {
                    let inherited = Inherited::of(default.as_ref(), new.mode, by.umask);
                    self.put_new(&mut edit, &mut parent, name, &mut new, &inherited)?;
                    Ok(new)
                });
            if made.is_err() {
                edit.free_inode(number, kind.0)?;
            }
            made
        })
    }

    /// Puts a new inode under its name, and writes both. A failed call has given back what it took.
    fn put_new(
        &self,
        edit: &mut LiveEdit<'_>,
        parent: &mut LoadedInode,
        name: &[u8],
        new: &mut LoadedInode,
        inherited: &Inherited,
    ) -> Result<(), Error> {
        let usage = Usage { space: 0, inodes: 1 };
        edit.charge(new, usage, Limits::Judged)?;
        let filled = fill(edit, parent, name, new, inherited);
        if filled.is_err() {
            // The directory may have grown.
            write_inode(edit, parent.number, &parent.inode)?;
            if new.blocks > 0 && new.is_dir() {
                let all = FileBlock(0)..FileBlock(MAX_FILE_BLOCKS);
                mapping::remove_step(edit, new, all, 1)?;
            }
            release_all(edit, new)?;
            edit.charge(new, usage.reversed(), Limits::Ignored)?;
            return filled;
        }
        write_loaded(edit, new)?;
        if new.is_dir() {
            parent.inode.links = one_more_subdir(parent.links);
        }
        touch(edit, parent);
        write_inode(edit, parent.number, &parent.inode)
    }

    /// Takes a name of a file away, and with its last link the file, unless somebody holds it ([`Self::acquire`]).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`], and as [`Self::create`].
    pub fn unlink(&self, dir: InodeNo, name: &[u8]) -> Result<(), Error> {
        check_own_name(name)?;
        let live = self.live()?;
        let parent = live.inodes.get(dir);
        let mut parent = parent.write(self, LockAs::Dir)?;
        check_gives_names(&parent)?;
        let found = lookup(self, &parent, name, BrokenIndex::Report)?;
        let file = live.inodes.get(found.inode);
        let mut inode = file.write(self, LockAs::File)?;
        if inode.is_dir() {
            return Err(Error::IsADirectory);
        }
        check_links_change(&inode)?;
        let mut edit = self.edit(credits::REMOVE_NAME + self.delete_credits(&inode))?;
        dir::remove(&mut edit, &mut parent, name)?;
        touch(&edit, &mut parent);
        write_inode(&mut edit, dir, &parent.inode)?;
        drop(parent);
        inode.inode.links -= 1;
        inode.inode.ctime = edit.now();
        if inode.links == 0 {
            return self.drop_file(edit, &file, inode);
        }
        write_inode(&mut edit, inode.number, &inode.inode)
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NotEmpty`], and as [`Self::create`].
    pub fn rmdir(&self, dir: InodeNo, name: &[u8]) -> Result<(), Error> {
        check_own_name(name)?;
        let live = self.live()?;
        let parent = live.inodes.get(dir);
        let mut parent = parent.write(self, LockAs::Dir)?;
        check_gives_names(&parent)?;
        let found = lookup(self, &parent, name, BrokenIndex::Report)?;
        let child = live.inodes.get(found.inode);
        let mut inode = child.write(self, LockAs::Child)?;
        inode.as_dir()?;
        check_links_change(&inode)?;
        if !dir::is_empty(self, &inode)? {
            return Err(Error::NotEmpty);
        }
        let mut edit = self.edit(credits::REMOVE_NAME + self.delete_credits(&inode))?;
        dir::remove(&mut edit, &mut parent, name)?;
        touch(&edit, &mut parent);
        parent.inode.links = one_subdir_less(parent.links);
        write_inode(&mut edit, dir, &parent.inode)?;
        drop(parent);
        inode.inode.links = 0;
        inode.inode.ctime = edit.now();
        self.drop_file(edit, &child, inode)
    }
}

/// The links of a directory with another subdirectory; too many to be counted are [`MANY_LINKS`].
fn one_more_subdir(links: u16) -> u16 {
    if links == MANY_LINKS || links >= MAX_LINKS { MANY_LINKS } else { links + 1 }
}

/// The links of a directory with a subdirectory less.
fn one_subdir_less(links: u16) -> u16 {
    if links > 2 { links - 1 } else { links }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdirectories_are_counted_up_to_the_limit_and_then_no_more() {
        assert_eq!(one_more_subdir(2), 3);
        assert_eq!(one_more_subdir(MAX_LINKS - 1), MAX_LINKS);
        assert_eq!(one_more_subdir(MAX_LINKS), MANY_LINKS);
        assert_eq!(one_more_subdir(MANY_LINKS), MANY_LINKS);
        assert_eq!(one_subdir_less(3), 2);
        assert_eq!(one_subdir_less(2), 2);
        assert_eq!(one_subdir_less(MANY_LINKS), MANY_LINKS);
    }
}
