//! Extended attributes, access control lists among them.

use extant_engine::{SetAttributes, XattrSet};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{PERMISSION_MASK, SETGID};
use extant_reader::{Error, VolumeRead};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::{Caller, RequestError, Server};

const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

impl Server {
    /// Whether the mount's options let attributes of that name be.
    fn check_name(&self, name: &[u8]) -> Result<(), RequestError> {
        let is_off = !self.policy.acl && ACL_NAMES.contains(&name)
            || !self.policy.user_xattr && name.starts_with(b"user.");
        if is_off { Err(Errno::OPNOTSUPP.into()) } else { Ok(()) }
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// As [`VolumeRead::xattr`].
    pub fn xattr(&self, file: InodeNo, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.with(|volume| {
            self.check_name(name)?;
            Ok(volume.xattr(file, name)?)
        })
    }

    /// The names of a file's attributes, each ended by a zero byte. Those of the namespace
    /// `trusted.` are for root alone.
    ///
    /// # Errors
    /// As [`VolumeRead::xattrs`].
    pub fn xattr_names(&self, file: InodeNo, by: Caller) -> Result<Vec<u8>, Errno> {
        self.with(|volume| {
            let mut names = Vec::new();
            for xattr in volume.xattrs(file)? {
                let is_hidden = by.uid != 0 && xattr.name.starts_with(b"trusted.");
                if !is_hidden && self.check_name(&xattr.name).is_ok() {
                    names.extend_from_slice(&xattr.name);
                    names.push(0);
                }
            }
            Ok(names)
        })
    }

    /// Sets an attribute; `flags` as `setxattr(2)` has them. With `drops_setgid` the file loses
    /// setgid too, as with an access control list that a stranger to its group sets.
    ///
    /// # Errors
    /// As [`Engine::set_xattr`](extant_engine::Engine::set_xattr).
    pub fn set_xattr(
        &self,
        file: InodeNo,
        name: &[u8],
        value: &[u8],
        flags: u32,
        drops_setgid: bool,
    ) -> Result<(), Errno> {
        let flags = XattrFlags::from_bits_truncate(flags);
        let how = if flags.contains(XattrFlags::CREATE) {
            XattrSet::Create
        } else if flags.contains(XattrFlags::REPLACE) {
            XattrSet::Replace
        } else {
            XattrSet::Any
        };
        self.with(|volume| {
            self.check_name(name)?;
            volume.engine()?.set_xattr(file, name, value, how)?;
            let mode = volume.inode(file)?.mode & PERMISSION_MASK;
            if drops_setgid && mode & SETGID != 0 {
                let set = SetAttributes { mode: Some(mode & !SETGID), ..SetAttributes::default() };
                volume.engine()?.set_attributes(file, &set)?;
            }
            Ok(())
        })
    }

    /// Removes an attribute. An access control list that is not there is removed already.
    ///
    /// # Errors
    /// As [`Engine::remove_xattr`](extant_engine::Engine::remove_xattr).
    pub fn remove_xattr(&self, file: InodeNo, name: &[u8]) -> Result<(), Errno> {
        self.with(|volume| {
            self.check_name(name)?;
            match volume.engine()?.remove_xattr(file, name) {
                // The mode alone then gives the permissions, as it does already.
                Err(Error::NoXattr) if ACL_NAMES.contains(&name) => Ok(()),
                done => Ok(done?),
            }
        })
    }
}
