//! Extended attributes: which ext4 can hold, and sets of them stored once each.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::acl::{self, Acl};
use super::error::Flaw;
use super::file_type;
use super::owner::Owners;

/// The kernel's XATTR_NAME_MAX.
const NAME_MAX: usize = 255;
/// The kernel's XATTR_SIZE_MAX.
const VALUE_MAX: usize = 65536;

/// Name of the access ACL's attribute.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the default ACL's attribute.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Number of a set of extended attributes in its tree.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct XattrSetId(pub u32);

impl XattrSetId {
    /// The empty set.
    pub const NONE: Self = Self(0);
}

/// One extended attribute, with its full name (`user.mime_type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Xattr<'a> {
    /// Namespace and name, at most 255 bytes.
    pub name: &'a [u8],
    /// At most 65,536 bytes.
    pub value: &'a [u8],
}

/// An access ACL after chmod(2); one that is not valid stays as it is.
pub(super) fn acl_with_mode(value: &[u8], mode: u16) -> Vec<u8> {
    let acl = extant_ondisk::acl::Acl::decode_xattr(value).ok().flatten();
    acl.map_or_else(|| value.to_vec(), |acl| acl.with_mode(mode).encode_xattr())
}

/// The attributes of one set, by the bytes of their names.
#[derive(Clone, Debug)]
pub struct Xattrs<'a>(&'a [u8]);

impl<'a> Iterator for Xattrs<'a> {
    type Item = Xattr<'a>;

    fn next(&mut self) -> Option<Xattr<'a>> {
        let (&[name, a, b, c], rest) = self.0.split_first_chunk()?;
        let value = u32::from_le_bytes([a, b, c, 0]) as usize;
        let (name, rest) = rest.split_at(usize::from(name));
        let (value, rest) = rest.split_at(value);
        self.0 = rest;
        Some(Xattr { name, value })
    }
}

/// Distinct sets, each packed: length of the name (1 byte) and of the value (3), name, value, for
/// every attribute.
#[derive(Debug)]
pub(super) struct XattrSets {
    bytes: Vec<u8>,
    /// Where each set ends; the first is empty.
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: RandomState,
    ignored: BTreeMap<Vec<u8>, u64>,
}

impl Default for XattrSets {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            ends: vec![0],
            index: HashTable::new(),
            hasher: RandomState::new(),
            ignored: BTreeMap::new(),
        }
    }
}

impl XattrSets {
    fn slice(ends: &[usize], bytes: &[u8], set: u32) -> std::ops::Range<usize> {
        debug_assert!(ends[set as usize] <= bytes.len());
        let start = if set == 0 { 0 } else { ends[set as usize - 1] };
        start..ends[set as usize]
    }

    pub(super) fn get(&self, set: XattrSetId) -> Xattrs<'_> {
        Xattrs(&self.bytes[Self::slice(&self.ends, &self.bytes, set.0)])
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (XattrSetId, Xattrs<'_>)> {
        (0..self.ends.len()).map(|set| {
            let id = XattrSetId(set as u32);
            (id, self.get(id))
        })
    }

    pub(super) fn ignored(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.ignored.iter().map(|(name, count)| (name.as_slice(), *count))
    }

    /// Takes over the names that `other` had no place for.
    pub(super) fn take_ignored(&mut self, other: &mut Self) {
        self.ignored = std::mem::take(&mut other.ignored);
    }

    /// The number of the set of `list`, which is left empty. Sorts by name; of equal names the last
    /// one counts. An access ACL sets the permission bits of `mode`, as it does in the kernel.
    pub(super) fn intern(
        &mut self,
        list: &mut XattrList,
        mode: &mut u16,
        owners: &Owners,
    ) -> Result<XattrSetId, Flaw> {
        if list.0.is_empty() {
            return Ok(XattrSetId::NONE);
        }
        let items = list.take_sorted();
        let start = self.bytes.len();
        for (name, value) in &items {
            if let Err(flaw) = self.push(name, value, mode, owners) {
                self.bytes.truncate(start);
                return Err(flaw);
            }
        }
        self.close(start)
    }

    fn push(
        &mut self,
        name: &[u8],
        value: &[u8],
        mode: &mut u16,
        owners: &Owners,
    ) -> Result<(), Flaw> {
        match stored(name, value, mode, owners)? {
            Stored::Never => *self.ignored.entry(name.to_vec()).or_default() += 1,
            Stored::InMode => {}
            Stored::Value(value) => append(&mut self.bytes, name, &value),
        }
        Ok(())
    }

    /// Makes the bytes from `start` on a set, unless there is one like it already.
    fn close(&mut self, start: usize) -> Result<XattrSetId, Flaw> {
        let Self { bytes, ends, index, hasher, .. } = self;
        if bytes.len() == start {
            return Ok(XattrSetId::NONE);
        }
        let hash = hasher.hash_one(&bytes[start..]);
        let same = |&set: &u32| bytes[Self::slice(ends, bytes, set)] == bytes[start..];
        if let Some(&set) = index.find(hash, same) {
            bytes.truncate(start);
            return Ok(XattrSetId(set));
        }
        let limit = Flaw::TreeLimit { what: "sets of extended attributes", limit: 1 << 32 };
        let set = u32::try_from(ends.len()).map_err(|_| limit)?;
        ends.push(bytes.len());
        index.insert_unique(hash, set, |&set| {
            hasher.hash_one(&bytes[Self::slice(ends, bytes, set)])
        });
        Ok(XattrSetId(set))
    }

    /// Nothing more will be added.
    pub(super) fn finish(&mut self) {
        self.index = HashTable::new();
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// The part of an attribute that ext4 stores.
enum Stored<'v> {
    /// Nothing: it has no place for it.
    Never,
    /// Nothing: the mode says the same.
    InMode,
    /// This value.
    Value(Cow<'v, [u8]>),
}

/// Checks an attribute of a node of this mode. An access ACL sets the permission bits of `mode`.
fn stored<'v>(
    name: &[u8],
    value: &'v [u8],
    mode: &mut u16,
    owners: &Owners,
) -> Result<Stored<'v>, Flaw> {
    let broken = |problem| Flaw::Xattr { name: name.into(), problem };
    if name.len() > NAME_MAX {
        return Err(broken("the name is longer than 255 bytes"));
    }
    if value.len() > VALUE_MAX {
        return Err(broken("the value is larger than 65536 bytes"));
    }
    if name.contains(&0) {
        return Err(broken("the name has a NUL byte"));
    }
    if !is_storable(name, *mode) {
        return Ok(Stored::Never);
    }
    if name != ACL_ACCESS && name != ACL_DEFAULT {
        return Ok(Stored::Value(value.into()));
    }
    let Some(mut acl) = Acl::from_kernel(value)? else { return Ok(Stored::InMode) };
    acl.map_owners(owners)?;
    if name == ACL_ACCESS {
        *mode = (*mode & !0o777) | acl.permissions();
    }
    if name == ACL_DEFAULT || !acl.is_minimal() {
        return Ok(Stored::Value(acl.to_kernel().into()));
    }
    Ok(Stored::InMode)
}

fn append(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let [a, b, c, _] = (value.len() as u32).to_le_bytes();
    bytes.extend_from_slice(&[name.len() as u8, a, b, c]);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(value);
}

/// Whether ext4 has a place for an attribute of this name, and the kernel would let a node of this
/// type have it.
fn is_storable(name: &[u8], mode: u16) -> bool {
    let kind = mode & file_type::MASK;
    let long = |prefix: &[u8]| name.len() > prefix.len() && name.starts_with(prefix);
    match name {
        ACL_ACCESS => kind != file_type::SYMLINK,
        ACL_DEFAULT => kind == file_type::DIRECTORY,
        _ if long(b"user.") => kind == file_type::REGULAR || kind == file_type::DIRECTORY,
        _ => long(b"trusted.") || long(b"security."),
    }
}

/// Attributes of one node as they are collected by a reader.
#[derive(Debug, Default)]
pub(super) struct XattrList(Vec<(Vec<u8>, Vec<u8>)>);

/// Names and values of attributes.
pub(super) type NamesAndValues = Vec<(Vec<u8>, Vec<u8>)>;

impl XattrList {
    /// Takes the attributes out, sorted by name; of equal names the last one counts.
    fn take_sorted(&mut self) -> NamesAndValues {
        let mut items = std::mem::take(&mut self.0);
        items.reverse();
        items.sort_by(|a, b| a.0.cmp(&b.0));
        items.dedup_by(|later, first| later.0 == first.0);
        items
    }

    /// Takes out what ext4 stores, and the names of attributes that it has no place for. An access
    /// ACL sets the permission bits of `mode`.
    pub(super) fn take_stored(
        &mut self,
        mode: &mut u16,
        owners: &Owners,
    ) -> Result<(NamesAndValues, Vec<Vec<u8>>), Flaw> {
        let (mut kept, mut ignored) = (Vec::new(), Vec::new());
        for (name, value) in self.take_sorted() {
            match stored(&name, &value, mode, owners)? {
                Stored::Never => ignored.push(name),
                Stored::InMode => {}
                Stored::Value(value) => {
                    let value = value.into_owned();
                    kept.push((name, value));
                }
            }
        }
        Ok((kept, ignored))
    }

    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.to_vec(), value.to_vec()));
    }

    /// Changes the access ACL with the permission bits, as chmod(2) does.
    pub(super) fn set_permissions(&mut self, permissions: u16) {
        if let Some(value) = self.take(ACL_ACCESS) {
            self.add(ACL_ACCESS, &acl_with_mode(&value, permissions));
        }
    }

    /// Takes an attribute out.
    pub(super) fn take(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|item| item.0 == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Adds an ACL that is given as text; an empty text adds nothing.
    pub(super) fn add_acl_text(&mut self, name: &[u8], text: &[u8]) -> Result<(), Flaw> {
        if let Some(acl) = acl::from_text(text)? {
            self.add(name, &acl.to_kernel());
        }
        Ok(())
    }
}
