//! The tree in the form for comparisons.

use super::{LOST_AND_FOUND, Model};
use crate::history::acl::to_xattr;
use crate::history::{FileId, Moment, Stamp};
use crate::{Entry, Kind, TreeSnapshot, content_digest};
use std::collections::BTreeMap;

impl Model {
    /// Number of links; for directories including those from subdirectories.
    pub fn links(&self, id: FileId) -> u64 {
        let file = self.get(id);
        if !file.is_dir() {
            return file.names.len() as u64;
        }
        if file.is_unlinked(id) {
            return 0;
        }
        2 + file.entries.values().filter(|child| self.get(**child).is_dir()).count() as u64
    }

    /// The tree as a snapshot to compare with the one found: times of steps are taken from that if
    /// they are valid. `lost+found` is left out of both.
    pub fn snapshot(&self, found: &TreeSnapshot) -> TreeSnapshot {
        let (mut tree, mut ids) = (TreeSnapshot::default(), BTreeMap::new());
        self.walk(|path, id| {
            let mut entry = self.entry(id);
            if let Some(other) = found.entries.get(&path) {
                let moment = Moment { seconds: other.mtime.0, nanoseconds: other.mtime.1 as u32 };
                if self.clock.allows(self.get(id).mtime, moment) {
                    entry.mtime = other.mtime;
                }
            }
            tree.entries.insert(path.clone(), entry);
            ids.insert(path, id);
        });
        self.group(&mut tree, &ids);
        tree
    }

    /// The tree without contents and times, and the file of each path: the parts that a transaction
    /// makes atomic.
    pub fn outline(&self) -> (TreeSnapshot, BTreeMap<Vec<u8>, FileId>) {
        let (mut tree, mut ids) = (TreeSnapshot::default(), BTreeMap::new());
        self.walk(|path, id| {
            tree.entries.insert(path.clone(), Entry { mtime: (0, 0), ..self.outline_of(id) });
            ids.insert(path, id);
        });
        self.group(&mut tree, &ids);
        (tree, ids)
    }

    fn group(&self, tree: &mut TreeSnapshot, ids: &BTreeMap<Vec<u8>, FileId>) {
        let mut groups: BTreeMap<FileId, Vec<Vec<u8>>> = BTreeMap::new();
        for (path, id) in ids.iter().filter(|(_, id)| !self.get(**id).is_dir()) {
            groups.entry(*id).or_default().push(path.clone());
        }
        tree.group_hard_links(groups.into_values());
    }

    /// Calls `see` for each path except `lost+found`.
    fn walk(&self, mut see: impl FnMut(Vec<u8>, FileId)) {
        let mut waiting = vec![(Vec::new(), FileId::ROOT)];
        while let Some((path, id)) = waiting.pop() {
            for (name, child) in
                self.get(id).entries.iter().filter(|(_, id)| **id != LOST_AND_FOUND)
            {
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                waiting.push(([&path, separator, name].concat(), *child));
            }
            see(path, id);
        }
    }

    fn entry(&self, id: FileId) -> Entry {
        let file = self.get(id);
        let read = |at, piece: &mut [u8]| {
            file.content.fill(at, piece);
            Ok(())
        };
        let content = (file.kind == Kind::File).then(|| {
            content_digest(file.size, file.content.ranges(), read).expect("memory is read")
        });
        Entry { content, ..self.outline_of(id) }
    }

    fn outline_of(&self, id: FileId) -> Entry {
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
        Entry {
            kind: file.kind,
            mode: file.mode,
            uid: file.uid,
            gid: file.gid,
            size: match file.kind {
                Kind::Symlink => file.target.len() as u64,
                _ => file.size,
            },
            links: self.links(id)
                - u64::from(file.entries.values().any(|id| *id == LOST_AND_FOUND)),
            mtime: match file.mtime {
                Stamp::Set(moment) => (moment.seconds, i64::from(moment.nanoseconds)),
                Stamp::Step(_) | Stamp::Unknown => (0, 0),
            },
            rdev: file.device,
            xattrs,
            target: (file.kind == Kind::Symlink).then(|| file.target.clone()),
            content: None,
            same_as: None,
        }
    }
}
