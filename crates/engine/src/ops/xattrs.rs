//! Extended attributes, access control lists and projects of files.

use super::attributes::INVALID_ID;
use super::credits;
use super::namespace::check_changeable;
use crate::edit::{Edit, write_inode};
use crate::engine::Engine;
use crate::engine::inodes::{CachedInode, LockClass};
use crate::engine::operation::Operation;
use crate::write::acl;
use crate::write::quota::Owners;
use crate::write::xattr::{self, XattrSet};
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::FileType;
use extant_ondisk::xattr::{MAX_SUFFIX_LEN, NameIndex, XattrName};
use extant_ondisk::{InodeNo, RoCompatFeatures};
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::xattr::{self as read_xattr, AclKind};
use extant_reader::{Error, VolumeRead};

/// The attribute of what a program may do that its user may not.
const CAPABILITY: &[u8] = b"security.capability";

/// Name spaces that users set attributes in.
const SETTABLE: [NameIndex; 4] =
    [NameIndex::USER, NameIndex::TRUSTED, NameIndex::SECURITY, NameIndex::HURD];

/// The meaning of a full name when an attribute is set.
enum Named {
    Attribute(XattrName),
    List(AclKind),
}

impl Named {
    fn parse(full: &[u8]) -> Result<Self, Error> {
        if full.len() > MAX_SUFFIX_LEN {
            return Err(Error::XattrNameTooLong);
        }
        for kind in [AclKind::Access, AclKind::Default] {
            if kind.name().full().is_some_and(|name| name == full) {
                return Ok(Self::List(kind));
            }
        }
        for index in SETTABLE {
            if index.prefix().is_some_and(|prefix| prefix.as_bytes() == full) {
                return Err(Error::Invalid("attribute name empty after its prefix"));
            }
        }
        XattrName::parse(full)
            .filter(|name| SETTABLE.contains(&name.index))
            .map(Self::Attribute)
            .ok_or(Error::NotSupported("attributes of this name"))
    }
}

/// Whether a file has attributes at all.
pub(super) fn may_have_capabilities(file: &LoadedInode) -> bool {
    !file.xattr_space.is_empty() || file.file_acl.0 != 0
}

impl Engine {
    /// Sets an extended attribute by its full name, as `user.comment`; access control lists in the
    /// form of `setxattr`.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoXattr`] as `how` says; [`Error::NotSupported`] for names
    /// that cannot be set, [`Error::NotPermitted`] for immutable files and for `user.` attributes
    /// of an inode that is neither file nor directory; [`Error::XattrNameTooLong`],
    /// [`Error::XattrTooLarge`], [`Error::NoXattrRoom`], [`Error::NoSpace`],
    /// [`Error::QuotaExceeded`], [`Error::ReadOnly`], corruption, or the journal or device failed.
    pub fn set_xattr(
        &self,
        file: InodeNo,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
    ) -> Result<(), Error> {
        let name = match Named::parse(name)? {
            Named::Attribute(name) => name,
            Named::List(kind) => {
                let list = Acl::decode_xattr(value)
                    .map_err(|_| Error::Invalid("not an access control list"))?;
                return self.set_acl(file, kind, list.as_ref());
            }
        };
        self.change_attributes(
            file,
            false,
            credits::set_xattr(self.geometry(), value.len()),
            |edit, inode| {
                let has_users_names =
                    matches!(inode.file_type(), FileType::Regular | FileType::Directory);
                if name.index == NameIndex::USER && !has_users_names {
                    return Err(Error::NotPermitted(file));
                }
                xattr::set(edit, inode, &name, value, how)
            },
        )
    }

    /// Sets an extended attribute by its name as stored, whatever its prefix: files are not asked
    /// whether they may have it. Access control lists and inline data are not for this.
    ///
    /// # Errors
    /// As of [`Self::set_xattr`].
    pub fn set_stored_xattr(
        &self,
        file: InodeNo,
        name: &XattrName,
        value: &[u8],
        how: XattrSet,
    ) -> Result<(), Error> {
        self.change_attributes(
            file,
            false,
            credits::set_xattr(self.geometry(), value.len()),
            |edit, inode| xattr::set(edit, inode, name, value, how),
        )
    }

    /// Removes an extended attribute by its name as stored.
    ///
    /// # Errors
    /// [`Error::NoXattr`], and as [`Self::set_xattr`].
    pub fn remove_stored_xattr(&self, file: InodeNo, name: &XattrName) -> Result<(), Error> {
        self.change_attributes(
            file,
            false,
            credits::set_xattr(self.geometry(), 0),
            |edit, inode| xattr::remove(edit, inode, name),
        )
    }

    /// Removes an extended attribute by its full name.
    ///
    /// # Errors
    /// [`Error::NoXattr`], and as [`Self::set_xattr`].
    pub fn remove_xattr(&self, file: InodeNo, name: &[u8]) -> Result<(), Error> {
        let name = match Named::parse(name)? {
            Named::Attribute(name) => name,
            Named::List(kind) => {
                self.acl(file, kind)?.ok_or(Error::NoXattr)?;
                return self.set_acl(file, kind, None);
            }
        };
        self.change_attributes(
            file,
            false,
            credits::set_xattr(self.geometry(), 0),
            |edit, inode| xattr::remove(edit, inode, &name),
        )
    }

    /// Gives a file an access control list, or takes it away. Its permissions follow an access
    /// list; a list that equals the mode is not stored.
    ///
    /// # Errors
    /// [`Error::NotADirectory`] for a default list of another file, [`Error::WrongFileType`] for a
    /// symbolic link, and as [`Self::set_xattr`].
    pub fn set_acl(&self, file: InodeNo, kind: AclKind, list: Option<&Acl>) -> Result<(), Error> {
        let len = list.map_or(0, |list| list.entries().len() * 8);
        self.change_attributes(
            file,
            false,
            credits::set_xattr(self.geometry(), len),
            |edit, inode| acl::set(edit, inode, kind, list),
        )
    }

    /// Sets the project of a file: what it uses counts for that project from now on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 4294967295, [`Error::NotSupported`] on a volume without projects or a
    /// file without room for one, [`Error::QuotaExceeded`] unless `is_privileged`, and as
    /// [`Self::set_xattr`].
    pub fn set_project(
        &self,
        file: InodeNo,
        project: u32,
        is_privileged: bool,
    ) -> Result<(), Error> {
        if project == INVALID_ID {
            return Err(Error::Invalid("invalid ID 4294967295"));
        }
        if !self.geometry().has_ro_compat(RoCompatFeatures::PROJECT) {
            return Err(Error::NotSupported("projects on this volume"));
        }
        let credits = credits::INODE + credits::QUOTA;
        self.change_attributes(file, is_privileged, credits, |edit, inode| {
            if inode.project.is_none() {
                return Err(Error::NotSupported("project ID of a file whose inode is too small"));
            }
            let to = Owners { project, ..Owners::of(&inode.inode) };
            edit.transfer(inode, to)?;
            inode.inode.project = Some(project);
            Ok(())
        })
    }

    /// Sets the version of a file, which is called its generation too.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a volume with checksums, of which the generation is a part, and
    /// as [`Self::set_xattr`].
    pub fn set_generation(&self, file: InodeNo, generation: u32) -> Result<(), Error> {
        if self.geometry().has_ro_compat(RoCompatFeatures::METADATA_CSUM) {
            return Err(Error::NotSupported("changing the generation on a volume with checksums"));
        }
        self.change_attributes(file, false, credits::INODE, |_, inode| {
            inode.inode.generation = generation;
            Ok(())
        })
    }

    /// Takes the capabilities from a file whose data or owner are about to change, as the kernel
    /// does.
    pub(super) fn drop_capabilities(
        &self,
        shared: &CachedInode,
        file: &mut LoadedInode,
    ) -> Result<(), Error> {
        if !may_have_capabilities(file) || shared.has_no_capabilities() {
            return Ok(());
        }
        match read_xattr::get(self, file, CAPABILITY) {
            Err(Error::NoXattr) => {}
            found => {
                found?;
                let name = XattrName::parse(CAPABILITY).ok_or(Error::NoXattr)?;
                let mut edit = self.edit(credits::set_xattr(self.geometry(), 0))?;
                xattr::remove(&mut edit, file, &name)?;
                write_inode(&mut edit, file.number, &file.inode)?;
                edit.finish();
            }
        }
        shared.set_has_no_capabilities(true);
        Ok(())
    }

    /// Changes something of a file that updates its ctime. A change that fails has changed nothing.
    fn change_attributes(
        &self,
        file: InodeNo,
        is_privileged: bool,
        credits: u32,
        mut change: impl FnMut(&mut Operation<'_>, &mut LoadedInode) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.with_space(|| {
            let shared = self.inodes.get(file);
            let mut inode = shared.write(self, LockClass::File)?;
            check_changeable(&inode)?;
            if self.has_quotas() {
                // The owners may change, for whom quota is reserved.
                self.write_back(&shared, &mut inode);
            }
            shared.set_has_no_capabilities(false);
            let mut edit = self.edit(credits)?.privileged(is_privileged);
            change(&mut edit, &mut inode)?;
            inode.inode.ctime = edit.now();
            inode.inode.count_change();
            write_inode(&mut edit, file, &inode.inode)?;
            edit.finish();
            Ok(())
        })
    }
}
