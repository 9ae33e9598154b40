//! Names: given to files that there are, and taken away.

use super::credits;
use crate::edit::{Edit, write_loaded};
use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::engine::operation::Operation;
use crate::write::{dir, orphans};
use extant_journal::FastNameChange;
use extant_ondisk::dirent::{FileType as EntryType, MAX_NAME_LEN};
use extant_ondisk::inode::{FileType, InodeFlags, MANY_LINKS};
use extant_ondisk::{Flaw, InodeNo, Location, RoCompatFeatures};
use extant_reader::Error;
use extant_reader::read::dir::BrokenIndex;
use extant_reader::read::dir::locate;
use extant_reader::read::dir_block::{EntryLocation, EntryTarget};
use extant_reader::read::inode::{self, LoadedInode};

/// Links that a file may have, as the kernel has it.
pub(super) const MAX_LINKS: u16 = 65_000;

/// Refuses what is no name of a file.
pub(super) fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > MAX_NAME_LEN {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("file name empty or with a slash or NUL byte"));
    }
    Ok(())
}

/// Refuses `.` and `..`, which are not made, taken away or renamed.
pub(super) fn check_own_name(name: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    if matches!(name, b"." | b"..") {
        return Err(Error::Invalid("cannot remove or rename '.' or '..'"));
    }
    Ok(())
}

/// Whether names may be put into the directory: it is one, still there, and not immutable.
pub(super) fn check_takes_names(dir: &LoadedInode) -> Result<(), Error> {
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
pub(super) fn check_gives_names(dir: &LoadedInode) -> Result<(), Error> {
    check_takes_names(dir)?;
    if dir.flags.contains(InodeFlags::APPEND) {
        return Err(Error::NotPermitted(dir.number));
    }
    Ok(())
}

/// Whether the flags of a file let its links and attributes be changed.
pub(super) fn check_changeable(file: &LoadedInode) -> Result<(), Error> {
    if file.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(Error::NotPermitted(file.number));
    }
    Ok(())
}

/// Whether a name of the file may be taken away or given to another. On a damaged volume, files may
/// have more names than links.
pub(super) fn check_loses_name(file: &LoadedInode) -> Result<(), Error> {
    check_changeable(file)?;
    if file.links == 0 {
        return Err(Flaw::bad_value("i_links_count", file.links)
            .at(Location::Inode(file.number))
            .into());
    }
    Ok(())
}

/// Whether the file may have a name in the directory: one that passes its project on takes no
/// others.
pub(super) fn check_project(dir: &LoadedInode, file: &LoadedInode) -> Result<(), Error> {
    let passes_on = dir.flags.contains(InodeFlags::PROJECT_INHERIT);
    if passes_on && dir.project.unwrap_or(0) != file.project.unwrap_or(0) {
        return Err(Error::CrossesBoundary);
    }
    Ok(())
}

/// The type in the form of a directory record.
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

/// A name of the directory changed now.
pub(super) fn touch(edit: &Operation<'_>, dir: &mut LoadedInode) {
    let now = edit.now();
    (dir.inode.mtime, dir.inode.ctime) = (now, now);
    dir.inode.count_change();
}

impl Engine {
    /// Whether another subdirectory may be made in `dir`.
    pub(super) fn check_takes_subdir(&self, dir: &LoadedInode) -> Result<(), Error> {
        let may_lose_count = self.geometry().has_ro_compat(RoCompatFeatures::DIR_NLINK)
            && dir.flags.contains(InodeFlags::INDEX);
        if dir.links >= MAX_LINKS && !may_lose_count {
            return Err(Error::TooManyLinks);
        }
        Ok(())
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// [`Error::LinksDirectory`], [`Error::NotPermitted`] for files that must not be changed,
    /// [`Error::TooManyLinks`], [`Error::CrossesBoundary`] where the directory passes another
    /// project on, [`Error::NotFound`] for a file whose last name was taken away, and as
    /// [`Self::create`].
    pub fn link(&self, file: InodeNo, dir: InodeNo, name: &[u8]) -> Result<LoadedInode, Error> {
        self.with_space(|| {
            let parent = self.inodes.get(dir);
            let mut parent = parent.write(self, LockClass::Dir)?;
            parent.as_dir()?;
            check_name(name)?;
            check_takes_names(&parent)?;
            if file == dir {
                return Err(Error::LinksDirectory);
            }
            let vacancy = dir::vacancy(self, &parent, name)?;
            // The directory's lock is not waited for: its holder may wait for the parent.
            if inode::load_any(self, file)?.is_dir() {
                return Err(Error::LinksDirectory);
            }
            let target = self.inodes.get(file);
            let mut inode = target.write(self, LockClass::File)?;
            if inode.is_dir() {
                return Err(Error::LinksDirectory);
            }
            check_changeable(&inode)?;
            if inode.links == 0 && !target.may_be_named() {
                return Err(Error::NotFound);
            }
            if inode.links >= MAX_LINKS {
                return Err(Error::TooManyLinks);
            }
            check_project(&parent, &inode)?;
            if inode.links == 0 {
                // A file that gets its first name is complete then.
                self.write_back(&target, &mut inode);
            }
            let credits = credits::insert_name(&parent) + credits::INODE + orphans::CREDITS;
            let mut edit = self.edit(credits)?;
            let found = EntryTarget { inode: file, file_type: entry_type(inode.file_type()) };
            dir::insert_new(&mut edit, &mut parent, name, found, vacancy)?;
            touch(&edit, &mut parent);
            write_loaded(&mut edit, &parent)?;
            if inode.links == 0 {
                self.orphans.lock().remove(&mut edit, file)?;
            } else {
                edit.name_changed(FastNameChange::Link, dir, file, name);
            }
            inode.inode.links += 1;
            inode.inode.ctime = edit.now();
            write_loaded(&mut edit, &inode)?;
            edit.finish();
            Ok(self.seen(&inode, inode.delayed()))
        })
    }

    /// Removes a name of a file, and with its last link the file, unless it is pinned
    /// ([`Self::acquire`]).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`], and as [`Self::create`].
    pub fn unlink(&self, dir: InodeNo, name: &[u8]) -> Result<(), Error> {
        self.record_corruption(self.unlink_named(dir, name))
    }

    /// Where a name is that is to be taken out of a locked directory.
    fn locate_to_remove(&self, dir: &LoadedInode, name: &[u8]) -> Result<EntryLocation, Error> {
        dir.as_dir()?;
        check_own_name(name)?;
        let located = locate(self, dir, name, BrokenIndex::Report)?;
        // As in the kernel: a name that does not exist is missing, with any flags of the directory.
        check_gives_names(dir)?;
        check_is_no_locked_dir(located.found.inode, &[dir.number])?;
        Ok(located)
    }

    fn unlink_named(&self, dir: InodeNo, name: &[u8]) -> Result<(), Error> {
        self.wait_for_thaw()?;
        let parent = self.inodes.get(dir);
        let mut parent = parent.write(self, LockClass::Dir)?;
        let located = self.locate_to_remove(&parent, name)?;
        let file = self.inodes.get(located.found.inode);
        let mut inode = file.write(self, LockClass::File)?;
        if inode.is_dir() {
            return Err(Error::IsADirectory);
        }
        check_loses_name(&inode)?;
        let mut edit = self.edit(credits::REMOVE_NAME + self.delete_credits(&inode))?;
        remove_name(&mut edit, &mut parent, located, Named::File)?;
        edit.name_changed(FastNameChange::Unlink, dir, inode.number, name);
        inode.inode.links -= 1;
        inode.inode.ctime = edit.now();
        if inode.links == 0 {
            return self.drop_file(edit, &file, inode, parent);
        }
        write_loaded(&mut edit, &inode)?;
        edit.finish();
        Ok(())
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NotEmpty`], and as [`Self::create`].
    pub fn rmdir(&self, dir: InodeNo, name: &[u8]) -> Result<(), Error> {
        self.record_corruption(self.rmdir_named(dir, name))
    }

    fn rmdir_named(&self, dir: InodeNo, name: &[u8]) -> Result<(), Error> {
        self.wait_for_thaw()?;
        let parent = self.inodes.get(dir);
        let mut parent = parent.write(self, LockClass::Dir)?;
        let located = self.locate_to_remove(&parent, name)?;
        let child = self.inodes.get(located.found.inode);
        let mut inode = child.write(self, LockClass::Child)?;
        inode.as_dir()?;
        check_loses_name(&inode)?;
        if !dir::is_empty(self, &inode)? {
            return Err(Error::NotEmpty);
        }
        let mut edit = self.edit(credits::REMOVE_NAME + self.delete_credits(&inode))?;
        remove_name(&mut edit, &mut parent, located, Named::Subdir)?;
        inode.inode.links = 0;
        inode.inode.ctime = edit.now();
        self.drop_file(edit, &child, inode, parent)
    }
}

/// No inode is locked twice, even on a broken volume: a name in a locked directory is of another
/// inode.
pub(super) fn check_is_no_locked_dir(named: InodeNo, locked: &[InodeNo]) -> Result<(), Error> {
    if locked.contains(&named) {
        let flaw = Flaw::Rule("directory contains itself");
        return Err(flaw.at(Location::Inode(named)).into());
    }
    Ok(())
}

/// The inode of a name that is removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Named {
    File,
    Subdir,
}

/// Takes a name out of its directory.
fn remove_name(
    edit: &mut Operation<'_>,
    parent: &mut LoadedInode,
    located: EntryLocation,
    named: Named,
) -> Result<(), Error> {
    dir::remove_located(edit, parent, located)?;
    touch(edit, parent);
    if named == Named::Subdir {
        parent.inode.links = one_subdir_less(parent.links);
    }
    write_loaded(edit, parent)
}

/// The links of a directory with another subdirectory; too many to be counted are [`MANY_LINKS`].
pub(super) fn one_more_subdir(links: u16) -> u16 {
    if links == MANY_LINKS || links >= MAX_LINKS { MANY_LINKS } else { links + 1 }
}

/// The links of a directory with a subdirectory less.
pub(super) fn one_subdir_less(links: u16) -> u16 {
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
