//! Access control lists changed, and what they have to do with modes: setting one, chmod, and what
//! new files inherit.

use super::xattr::{self, XattrSet};
use crate::edit::EditInodes;
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::{FILE_TYPE_MASK, FileType};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::xattr::{AclKind, acl};

/// The mode's bits that correspond to an access list.
const LISTED: u16 = 0o777;

/// Gives a file a list, or takes it away. The mode follows an access list, and a list that equals
/// the mode is not stored; removal of a list leaves the mode as it is. The caller writes the inode
/// afterwards.
///
/// # Errors
/// [`Error::NotADirectory`] for a default list of another file, [`Error::WrongFileType`] for a
/// symbolic link, or as [`xattr::set`]. A failed call has changed nothing.
pub fn set<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    kind: AclKind,
    list: Option<&Acl>,
) -> Result<(), Error> {
    if file.file_type() == FileType::Symlink {
        return Err(Error::WrongFileType);
    }
    match kind {
        AclKind::Access => {
            store(edit, file, kind, list.filter(|list| !list.is_only_a_mode()))?;
            if let Some(list) = list {
                file.inode.mode = file.mode & !LISTED | list.mode();
            }
            Ok(())
        }
        AclKind::Default if !file.is_dir() && list.is_some() => Err(Error::NotADirectory),
        AclKind::Default => store(edit, file, kind, list),
    }
}

/// Sets the permissions, with setuid, setgid and sticky: an access list follows them, its mask for
/// the group. The caller writes the inode afterwards.
///
/// # Errors
/// A broken list, or as [`xattr::set`]. A failed call has changed nothing.
pub fn chmod<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    permissions: u16,
) -> Result<(), Error> {
    if let Some(list) = acl(edit, file, AclKind::Access)? {
        store(edit, file, AclKind::Access, Some(&list.with_mode(permissions)))?;
    }
    file.inode.mode = file.mode & FILE_TYPE_MASK | permissions & !FILE_TYPE_MASK;
    Ok(())
}

/// The attributes that a new file inherits from its directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inherited {
    /// Type and permissions.
    pub mode: u16,
    /// Its access list.
    pub access: Option<Acl>,
    /// Its default list, when it is a directory itself.
    pub default: Option<Acl>,
}

impl Inherited {
    /// The attributes that a file of `mode` inherits in a directory with this default list: with
    /// one the umask has no effect. Symbolic links inherit nothing, and no umask concerns them.
    pub fn of(default: Option<&Acl>, mode: u16, umask: u16) -> Self {
        let file_type = FileType::of_mode(mode);
        match default {
            _ if file_type == Some(FileType::Symlink) => Self { mode, access: None, default: None },
            Some(list) => {
                let (mode, access) = list.inherited(mode);
                let is_dir = file_type == Some(FileType::Directory);
                Self { mode, access, default: is_dir.then(|| list.clone()) }
            }
            None => Self { mode: mode & !(umask & LISTED), access: None, default: None },
        }
    }

    /// Gives a new file its lists and its mode. The caller writes the inode afterwards.
    ///
    /// # Errors
    /// As [`xattr::set`].
    pub fn give<E: EditInodes>(&self, edit: &mut E, file: &mut LoadedInode) -> Result<(), Error> {
        for (kind, list) in [(AclKind::Access, &self.access), (AclKind::Default, &self.default)] {
            if list.is_some() {
                store(edit, file, kind, list.as_ref())?;
            }
        }
        file.inode.mode = self.mode;
        Ok(())
    }
}

fn store<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    kind: AclKind,
    list: Option<&Acl>,
) -> Result<(), Error> {
    let name = kind.name();
    match list {
        Some(list) => xattr::set(edit, file, &name, &list.encode_disk(), XattrSet::Any),
        None => match xattr::remove(edit, file, &name) {
            Err(Error::NoXattr) => Ok(()),
            outcome => outcome,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::acl::{AclEntry, Subject};

    fn list() -> Acl {
        let entry = |subject, permissions| AclEntry { subject, permissions };
        Acl::new(vec![
            entry(Subject::Owner, 7),
            entry(Subject::User(1000), 6),
            entry(Subject::OwningGroup, 5),
            entry(Subject::Mask, 7),
            entry(Subject::Other, 4),
        ])
        .unwrap()
    }

    #[test]
    fn without_a_default_list_the_umask_counts() {
        let inherited = Inherited::of(None, 0o100_666, 0o022);
        assert_eq!(inherited, Inherited { mode: 0o100_644, access: None, default: None });
    }

    #[test]
    fn with_a_default_list_the_umask_does_not() {
        let inherited = Inherited::of(Some(&list()), 0o100_666, 0o777);
        assert_eq!(inherited.mode, 0o100_664);
        assert_eq!(inherited.access.map(|list| list.mode()), Some(0o664));
        assert_eq!(inherited.default, None, "no directory");
    }

    #[test]
    fn a_new_directory_inherits_the_default_list_itself() {
        let inherited = Inherited::of(Some(&list()), 0o040_755, 0);
        assert_eq!(inherited.mode, 0o040_754);
        assert_eq!(inherited.default, Some(list()));
    }

    #[test]
    fn a_symbolic_link_inherits_nothing() {
        let inherited = Inherited::of(Some(&list()), 0o120_777, 0o022);
        assert_eq!(inherited, Inherited { mode: 0o120_777, access: None, default: None });
    }
}
