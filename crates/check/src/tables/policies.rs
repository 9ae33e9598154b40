//! The policies of encryption.

use extant_ondisk::InodeNo;
use extant_runtime::sync::Mutex;
use std::collections::BTreeMap;

/// Which inodes are encrypted by which policy.
#[derive(Default)]
pub(crate) struct PolicyTable(Mutex<Policies>);

#[derive(Default)]
struct Policies {
    known: BTreeMap<Vec<u8>, u32>,
    of: BTreeMap<InodeNo, u32>,
}

impl PolicyTable {
    pub(crate) fn note(&self, ino: InodeNo, policy: &[u8]) {
        let mut table = self.0.lock();
        let next = table.known.len() as u32;
        let id = *table.known.entry(policy.to_vec()).or_insert(next);
        table.of.insert(ino, id);
    }

    /// Whether two encrypted inodes have different policies.
    pub(crate) fn differ(&self, a: InodeNo, b: InodeNo) -> bool {
        let table = self.0.lock();
        match (table.of.get(&a), table.of.get(&b)) {
            (Some(a), Some(b)) => a != b,
            _ => false,
        }
    }
}
