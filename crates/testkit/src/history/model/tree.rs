//! The tree as others compare it.

use super::{LOST_AND_FOUND, Model};
use crate::history::acl::to_xattr;
use crate::history::{FileId, Moment, Stamp};
use crate::{Entry, Kind, TreeSnapshot, content_digest};
use std::collections::BTreeMap;

impl Model {
    /// Number of names; directories' with those that lead to them from below.
    pub fn links(&self, id: FileId) -> u64 {
        let file = self.get(id);
        if !file.is_dir() {
            return file.names.len() as u64;
        }
        if file.is_nameless(id) {
            return 0;
        }
        2 + file.entries.values().filter(|child| self.get(**child).is_dir()).count() as u64
    }

    /// The tree as a snapshot to compare with the one found: times of steps are the found ones where these may be.
    /// `lost+found` is left out of both.
    pub fn snapshot(&self, found: &TreeSnapshot) -> TreeSnapshot {
        let mut tree = TreeSnapshot::default();
        let mut groups: BTreeMap<FileId, Vec<Vec<u8>>> = BTreeMap::new();
        let mut waiting = vec![(Vec::new(), FileId::ROOT)];
        while let Some((path, id)) = waiting.pop() {
            if id == LOST_AND_FOUND {
                continue;
            }
            let file = self.get(id);
            for (name, child) in &file.entries {
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                waiting.push(([&path, separator, name].concat(), *child));
            }
            if !file.is_dir() {
                groups.entry(id).or_default().push(path.clone());
            }
            let mut entry = self.entry(id);
            if id == FileId::ROOT {
                entry.links -= 1;
            }
            if let Some(other) = found.entries.get(&path) {
                let moment = Moment { seconds: other.mtime.0, nanoseconds: other.mtime.1 as u32 };
                if self.clock.allows(file.mtime, moment) {
                    entry.mtime = other.mtime;
                }
            }
            tree.entries.insert(path, entry);
        }
        tree.group_hard_links(groups.into_values());
        tree
    }

    fn entry(&self, id: FileId) -> Entry {
        let file = self.get(id);
        let mut xattrs = file.xattrs.clone();
        for (name, acl) in [
            (&b"system.posix_acl_access"[..], &file.access_acl),
            (b"system.posix_acl_default", &file.default_acl),
        ] {
            if !acl.is_empty() {
                xattrs.insert(name.to_vec(), to_xattr(acl));
            }
        }
        let read = |at, piece: &mut [u8]| {
            file.content.fill(at, piece);
            Ok(())
        };
        let content = content_digest(file.size, file.content.ranges(), read);
        Entry {
            kind: file.kind,
            mode: file.mode,
            uid: file.uid,
            gid: file.gid,
            size: match file.kind {
                Kind::Symlink => file.target.len() as u64,
                _ => file.size,
            },
            links: self.links(id),
            mtime: match file.mtime {
                Stamp::Set(moment) => (moment.seconds, i64::from(moment.nanoseconds)),
                Stamp::Step(_) | Stamp::Unknown => (0, 0),
            },
            rdev: file.device,
            xattrs,
            target: (file.kind == Kind::Symlink).then(|| file.target.clone()),
            content: (file.kind == Kind::File).then(|| content.expect("memory is read")),
            same_as: None,
        }
    }
}
