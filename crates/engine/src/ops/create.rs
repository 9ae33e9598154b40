//! New files: regular ones, directories, links, special files, files without a name.

use super::namespace::{check_name, check_takes_names, entry_type, one_more_subdir, touch};
use super::{Credentials, credits};
use crate::alloc::InodeRequest;
use crate::edit::{AllocationRequest, Edit, Limits, Purpose, Usage, write_loaded, write_new_inode};
use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::engine::operation::Operation;
use crate::write::acl::Inherited;
use crate::write::dir::Vacancy;
use crate::write::inline::{self, set_empty_map};
use crate::write::mapping::ExtentState;
use crate::write::{dir, mapping, orphans};
use extant_device::Device;
use extant_journal::FastNameChange;
use extant_ondisk::inode::{DeviceNumber, FileType, I_BLOCK_SIZE, InodeFlags, PERMISSION_MASK};
use extant_ondisk::{FileBlock, InodeNo};
use extant_reader::Error;
use extant_reader::read::dir_block::EntryTarget;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::xattr::{self, AclKind};

/// Bytes of a symbolic link's target with its terminating zero byte, as on Linux.
const MAX_TARGET: usize = 4096;

/// The charge of a new file to its owners before it has blocks.
const ONE_INODE: Usage = Usage { space: 0, inodes: 1 };

/// The first contents of a new file.
#[derive(Clone, Copy)]
enum Content<'a> {
    /// Nothing; a directory `.` and `..`.
    Empty,
    /// The number of a device, as `i_block` holds it.
    Device([u8; I_BLOCK_SIZE]),
    /// The target of a symbolic link.
    Target(&'a [u8]),
}

impl Content<'_> {
    fn needs_block(&self, is_dir: bool) -> bool {
        match self {
            Self::Empty => is_dir,
            Self::Device(_) => false,
            Self::Target(target) => target.len() >= I_BLOCK_SIZE,
        }
    }
}

impl Engine {
    /// Makes an empty regular file. `permissions` are the mode's low twelve bits, less those of the
    /// umask.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] if the directory was removed,
    /// [`Error::NotADirectory`], [`Error::NameTooLong`], [`Error::Invalid`], [`Error::NoSpace`],
    /// [`Error::NoInodes`], [`Error::NotPermitted`], [`Error::Encrypted`], [`Error::ReadOnly`],
    /// corruption, or the journal or device failed.
    pub fn create(
        &self,
        dir: InodeNo,
        name: &[u8],
        permissions: u16,
        by: &Credentials,
    ) -> Result<LoadedInode, Error> {
        self.make(dir, name, (FileType::Regular, permissions), Content::Empty, by)
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
        by: &Credentials,
    ) -> Result<LoadedInode, Error> {
        self.make(dir, name, (FileType::Directory, permissions), Content::Empty, by)
    }

    /// Makes a file of any type but a directory or a symbolic link: `mode` has type and
    /// permissions. `device` is the number of a device file.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another type or a number that the format cannot hold, and as
    /// [`Self::create`].
    pub fn mknod(
        &self,
        dir: InodeNo,
        name: &[u8],
        mode: u16,
        device: DeviceNumber,
        by: &Credentials,
    ) -> Result<LoadedInode, Error> {
        let file_type =
            FileType::of_mode(mode).ok_or(Error::Invalid("mode without a file type"))?;
        let content = match file_type {
            FileType::Directory | FileType::Symlink => {
                return Err(Error::Invalid("directory or link given as a special file"));
            }
            FileType::CharDevice | FileType::BlockDevice => {
                let number = device.encode();
                Content::Device(number.ok_or(Error::Invalid("device number too large"))?)
            }
            FileType::Regular | FileType::Fifo | FileType::Socket => Content::Empty,
        };
        self.make(dir, name, (file_type, mode & PERMISSION_MASK), content, by)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] for a target that does not fit into a block, [`Error::Invalid`] for
    /// an empty one, and as [`Self::create`].
    pub fn symlink(
        &self,
        dir: InodeNo,
        name: &[u8],
        target: &[u8],
        by: &Credentials,
    ) -> Result<LoadedInode, Error> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("target empty or with a NUL byte"));
        }
        // The kernel terminates it with a zero byte.
        if target.len() >= self.geometry().block_len() || target.len() >= MAX_TARGET {
            return Err(Error::NameTooLong);
        }
        self.make(dir, name, (FileType::Symlink, 0o777), Content::Target(target), by)
    }

    /// Makes a regular file without a name, held once ([`Self::acquire`]): it goes when it is
    /// released, unless it was given a name.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn tmpfile(
        &self,
        dir: InodeNo,
        permissions: u16,
        by: &Credentials,
    ) -> Result<LoadedInode, Error> {
        self.with_space(|| {
            let parent = self.inodes.get(dir);
            let parent = parent.read(self, LockClass::Dir)?;
            check_takes_names(&parent)?;
            let default = xattr::acl(self, &parent, AclKind::Default)?;
            let credits = credits::INODE_NUMBER
                + credits::quotas(self)
                + orphans::CREDITS
                + if default.is_some() { credits::XATTR_BLOCK } else { 0 };
            let mut edit = self.edit(credits)?.privileged(by.is_privileged);
            let request = InodeRequest { parent: dir, is_dir: false, is_top: false };
            let number = edit.allocate_inode_for(request)?;
            let file = self.inodes.get(number);
            // Before another thread can take it for an orphan to be deleted.
            file.pin_new();
            let kind = (FileType::Regular, permissions);
            let made =
                self.new_inode(&edit, number, &parent.inode, kind, by).and_then(|mut new| {
                    new.inode.links = 0;
                    let inherited = Inherited::of(default.as_ref(), new.mode, by.umask);
                    put_unlinked(&mut edit, &mut new, &inherited)?;
                    self.orphans.lock().add(&mut edit, number)?;
                    Ok(new)
                });
            let made = made.inspect_err(|_| {
                file.unpin(1);
            })?;
            edit.finish();
            let mut locked = file.write_with(LockClass::File, |_| Ok(made.clone()))?;
            // A caller that knows the number of an earlier file may have loaded a part of it.
            locked.clone_from(&made);
            file.set_may_be_named(&locked);
            Ok(made)
        })
    }

    /// Makes the whiteout for a name that was moved away (RENAME_WHITEOUT): a character device of
    /// the number 0:0 without permissions, one link and no name yet.
    pub(super) fn make_whiteout(
        &self,
        edit: &mut Operation<'_>,
        dir: &LoadedInode,
        by: &Credentials,
    ) -> Result<EntryTarget, Error> {
        let request = InodeRequest { parent: dir.number, is_dir: false, is_top: false };
        let number = edit.allocate_inode_for(request)?;
        let kind = (FileType::CharDevice, 0);
        let new = self.new_inode(edit, number, &dir.inode, kind, by)?;
        edit.charge(&new, ONE_INODE, Limits::Enforced)?;
        write_loaded(edit, &new)?;
        Ok(EntryTarget { inode: number, file_type: entry_type(FileType::CharDevice) })
    }

    fn make(
        &self,
        dir: InodeNo,
        name: &[u8],
        kind: (FileType, u16),
        content: Content<'_>,
        by: &Credentials,
    ) -> Result<LoadedInode, Error> {
        let is_dir = kind.0 == FileType::Directory;
        self.with_space(|| {
            let parent = self.inodes.get(dir);
            let mut parent = parent.write(self, LockClass::Dir)?;
            parent.as_dir()?;
            check_name(name)?;
            check_takes_names(&parent)?;
            let vacancy = dir::vacancy(self, &parent, name)?;
            if is_dir {
                self.check_takes_subdir(&parent)?;
            }
            let default = xattr::acl(self, &parent, AclKind::Default)?;
            let credits = credits::INODE_NUMBER
                + credits::quotas(self)
                + credits::insert_name(&parent)
                + if content.needs_block(is_dir) { credits::map_block(&parent) } else { 0 }
                + if default.is_some() { credits::XATTR_BLOCK } else { 0 };
            let mut edit = self.edit(credits)?.privileged(by.is_privileged);
            let is_top = dir == InodeNo::ROOT || parent.flags.contains(InodeFlags::TOPDIR);
            let number = edit.allocate_inode_for(InodeRequest { parent: dir, is_dir, is_top })?;
            let mut new = self.new_inode(&edit, number, &parent.inode, kind, by)?;
            let inherited = Inherited::of(default.as_ref(), new.mode, by.umask);
            let at = (name, vacancy);
            self.put_new(&mut edit, &mut parent, at, &mut new, (&inherited, content))?;
            if kind.0 == FileType::Regular {
                edit.name_changed(FastNameChange::Create, dir, number, name);
            }
            edit.finish();
            Ok(new)
        })
    }

    /// Puts a new inode under its name, and writes both.
    fn put_new(
        &self,
        edit: &mut Operation<'_>,
        parent: &mut LoadedInode,
        (name, vacancy): (&[u8], Vacancy),
        new: &mut LoadedInode,
        (inherited, content): (&Inherited, Content<'_>),
    ) -> Result<(), Error> {
        edit.charge(new, ONE_INODE, Limits::Enforced)?;
        // A caller that knows the number of an earlier file finds no inode until this one is
        // written completely.
        let links = std::mem::take(&mut new.inode.links);
        self.fill_new(edit, parent.number, new, inherited, content)?;
        let found = EntryTarget { inode: new.number, file_type: entry_type(new.file_type()) };
        dir::insert_new(edit, parent, name, found, vacancy)?;
        new.inode.links = links;
        write_loaded(edit, new)?;
        if new.is_dir() {
            parent.inode.links = one_more_subdir(parent.links);
        }
        touch(edit, parent);
        write_loaded(edit, parent)
    }

    /// Gives a new file what it inherits and what it starts with.
    fn fill_new(
        &self,
        edit: &mut Operation<'_>,
        parent: InodeNo,
        new: &mut LoadedInode,
        inherited: &Inherited,
        content: Content<'_>,
    ) -> Result<(), Error> {
        give(edit, new, inherited)?;
        match content {
            Content::Empty if new.is_dir() => dir::create(edit, new, parent),
            Content::Empty if new.file_type() == FileType::Regular => {
                inline::start(edit, new).map(drop)
            }
            Content::Empty => Ok(()),
            Content::Device(number) => {
                new.inode.i_block = number;
                Ok(())
            }
            Content::Target(target) if target.len() < I_BLOCK_SIZE => {
                new.inode.i_block[..target.len()].copy_from_slice(target);
                new.inode.size = target.len() as u64;
                Ok(())
            }
            Content::Target(target) => self.put_target(edit, new, target),
        }
    }

    /// Writes a long target to a block of its own, before anything shows it.
    fn put_target(
        &self,
        edit: &mut Operation<'_>,
        link: &mut LoadedInode,
        target: &[u8],
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        set_empty_map(&self.sizes.info, link);
        let (inode, purpose) = (link.number, Purpose::Data);
        let request = AllocationRequest { inode, purpose, goal: None, count: 1, part: None };
        let run = mapping::allocate(edit, link, FileBlock(0), request, ExtentState::Written)?;
        link.inode.size = target.len() as u64;
        let mut block = target.to_vec();
        block.resize(geometry.block_len(), 0);
        self.device.write_at(geometry.byte_of(run.start), &block)?;
        if self.options.journal_async_commit {
            // Such a commit flushes nothing before itself, and a link whose target is not there is
            // no link.
            self.flush_or_stop()?;
        }
        Ok(())
    }
}

/// Gives a new file what it inherits. Attributes are changed in a record that is there.
fn give(
    edit: &mut Operation<'_>,
    new: &mut LoadedInode,
    inherited: &Inherited,
) -> Result<(), Error> {
    if inherited.access.is_some() || inherited.default.is_some() {
        write_new_inode(edit, new.number, &new.inode)?;
    }
    inherited.give(edit, new)
}

/// Writes a new file that has no name.
fn put_unlinked(
    edit: &mut Operation<'_>,
    new: &mut LoadedInode,
    inherited: &Inherited,
) -> Result<(), Error> {
    edit.charge(new, ONE_INODE, Limits::Enforced)?;
    give(edit, new, inherited)?;
    inline::start(edit, new)?;
    write_loaded(edit, new)
}
