//! Extended attributes and access control lists.

use super::data;
use super::inode::{LoadedInode, load};
use crate::error::Error;
use crate::source::{BlockKind, MetadataRead};
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::xattr::{
    EaValue, MAX_VALUE_SIZE, NameIndex, ValueRef, XattrName, XattrRef, decode_block, decode_inode,
    ea_entry_hash, value_hash,
};
use extant_ondisk::{Flaw, Location};

/// An attribute's name and the length of its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct XattrInfo {
    /// The full name, as `user.comment`; any bytes.
    pub name: Vec<u8>,
    /// Bytes of the value as stored.
    pub size: u64,
}

/// Which of a file's access control lists.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AclKind {
    /// Access to the file.
    Access,
    /// The list that new files in the directory inherit.
    Default,
}

impl AclKind {
    fn index(self) -> NameIndex {
        match self {
            Self::Access => NameIndex::ACL_ACCESS,
            Self::Default => NameIndex::ACL_DEFAULT,
        }
    }

    /// The name of the attribute that stores such a list.
    pub fn name(self) -> XattrName {
        XattrName { index: self.index(), suffix: Vec::new() }
    }
}

/// The attributes that are visible to users, those in the inode first. Encryption contexts and
/// inline data are not among them.
///
/// # Errors
/// Broken attributes, or the device failed.
pub fn list<S: MetadataRead>(source: &S, inode: &LoadedInode) -> Result<Vec<XattrInfo>, Error> {
    let mut names: Vec<XattrInfo> = Vec::new();
    visit(source, inode, |xattr, _| {
        if !xattr.name.is_inline_data()
            && let Some(name) = xattr.name.full()
            && !names.iter().any(|known| known.name == name)
        {
            let size = match xattr.value {
                ValueRef::Stored(value) => value.len() as u64,
                ValueRef::EaInode(ea) => u64::from(ea.size),
            };
            names.push(XattrInfo { name, size });
        }
        Ok(None::<()>)
    })?;
    Ok(names)
}

/// The value of an attribute by its full name, as users get it: access control lists in the form of
/// `getxattr`.
///
/// # Errors
/// [`Error::NoXattr`], a broken attribute, or the device failed.
pub fn get<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    name: &[u8],
) -> Result<Vec<u8>, Error> {
    let parsed = XattrName::parse(name).ok_or(Error::NoXattr)?;
    if parsed == XattrName::inline_data() {
        return Err(Error::NoXattr);
    }
    let stored = stored_value(source, inode, &parsed)?.ok_or(Error::NoXattr)?;
    match parsed.index {
        NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT => {
            let acl = Acl::decode_disk(&stored)?;
            Ok(acl.map(|acl| acl.encode_xattr()).unwrap_or_default())
        }
        _ => Ok(stored),
    }
}

/// An access control list; `None` when the file has none of that kind.
///
/// # Errors
/// A broken list or attribute, or the device failed.
pub fn acl<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    kind: AclKind,
) -> Result<Option<Acl>, Error> {
    match stored_value(source, inode, &kind.name())? {
        Some(stored) => Ok(Acl::decode_disk(&stored)?),
        None => Ok(None),
    }
}

fn stored_value<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    name: &XattrName,
) -> Result<Option<Vec<u8>>, Error> {
    visit(source, inode, |xattr, place| {
        if xattr.name.index != name.index || xattr.name.suffix != name.suffix {
            return Ok(None);
        }
        match xattr.value {
            ValueRef::Stored(_) if !xattr.hash_matches() => {
                Err(Flaw::bad_value("e_hash", xattr.hash).at(place).into())
            }
            ValueRef::Stored(value) => Ok(Some(value.to_vec())),
            ValueRef::EaInode(ea) => ea_value(source, inode, xattr, ea).map(Some),
        }
    })
}

/// Shows every attribute to `visitor` until it finds something: those of the inode, then those of
/// its block.
fn visit<S: MetadataRead, T>(
    source: &S,
    inode: &LoadedInode,
    mut visitor: impl FnMut(&XattrRef<'_>, Location) -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let geometry = source.geometry();
    for xattr in decode_inode(&inode.xattr_space, inode.number, geometry)? {
        if let Some(found) = visitor(&xattr, Location::InodeXattr(inode.number))? {
            return Ok(Some(found));
        }
    }
    let block = inode.file_acl;
    if block.0 == 0 {
        return Ok(None);
    }
    if !geometry.contains(block, 1) {
        return Err(Flaw::bad_value("i_file_acl", block.0)
            .at(Location::Inode(inode.number))
            .into());
    }
    let bytes = source.metadata(block, BlockKind::XattrBlock)?;
    for xattr in decode_block(&bytes, block, geometry)? {
        if let Some(found) = visitor(&xattr, Location::XattrBlock(block))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A value that has an inode of its own: of the stated size and hash.
fn ea_value<S: MetadataRead>(
    source: &S,
    owner: &LoadedInode,
    xattr: &XattrRef<'_>,
    ea: EaValue,
) -> Result<Vec<u8>, Error> {
    let place = Location::EaInode(ea.inode);
    if ea.size > MAX_VALUE_SIZE {
        return Err(Flaw::above_limit("e_value_size", ea.size, MAX_VALUE_SIZE).at(place).into());
    }
    let inode = load(source, ea.inode)?;
    if !inode.flags.contains(InodeFlags::EA_INODE) || inode.is_dir() {
        return Err(Flaw::Rule("the inode is not one of an attribute's value").at(place).into());
    }
    if inode.size != u64::from(ea.size) {
        return Err(Flaw::bad_value("i_size", inode.size).at(place).into());
    }
    // At most 16 MiB.
    let mut value = vec![0; ea.size as usize];
    data::read_journalled(source, &inode, &mut value)?;
    let hash = value_hash(&value, source.geometry().checksum_seed);
    let is_right =
        inode.ea_inode_checksum() == hash && xattr.hash == ea_entry_hash(xattr.name.suffix, hash);
    // Lustre's way, older than the hash: the value's inode names its owner instead.
    let is_owned =
        inode.mtime.seconds == i64::from(owner.number.0) && inode.generation == owner.generation;
    if !is_right && !is_owned {
        return Err(Flaw::checksum(inode.ea_inode_checksum(), hash).at(place).into());
    }
    Ok(value)
}
