//! Clusters that the check before a repair found claimed more than once.

use crate::store::{CheckError, Store};
use extant_ondisk::{BlockNo, ClusterNo};
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

/// Bytes of inode tables that are kept at most.
const MOST: usize = 16 << 20;

/// Clusters that are claimed more than once. Pass 1 repairs the inode tables before it makes copies
/// of what files claim of them, so that the blocks of these tables are kept here as they were.
#[derive(Debug, Default)]
pub(crate) struct SharedClusters {
    clusters: RoaringTreemap,
    tables: BTreeMap<BlockNo, Vec<u8>>,
}

impl SharedClusters {
    /// The clusters that the first check found, with copies of the inode-table blocks among them.
    pub(crate) fn read(store: &Store, clusters: RoaringTreemap) -> Result<Self, CheckError> {
        let mut tables = BTreeMap::new();
        if clusters.is_empty() {
            return Ok(Self { clusters, tables });
        }
        let geometry = store.geometry();
        let (first, per_cluster) =
            (geometry.first_data_block.0, u64::from(geometry.blocks_per_cluster));
        let count = u64::from(geometry.itable_blocks());
        for table in store.descs().iter().map(|desc| desc.inode_table) {
            if !geometry.contains(table, count) || table.0 < first {
                continue;
            }
            let of_table =
                (table.0 - first) / per_cluster..=(table.0 + count - 1 - first) / per_cluster;
            for cluster in of_table.filter(|cluster| clusters.contains(*cluster)) {
                let start = first + cluster * per_cluster;
                for block in
                    (start..start + per_cluster).filter(|it| geometry.contains(BlockNo(*it), 1))
                {
                    if tables.len() * geometry.block_len() >= MOST {
                        return Ok(Self { clusters, tables });
                    }
                    tables.insert(BlockNo(block), store.read(BlockNo(block))?);
                }
            }
        }
        Ok(Self { clusters, tables })
    }

    /// Whether something else claims a cluster too.
    pub(crate) fn contains(&self, cluster: ClusterNo) -> bool {
        self.clusters.contains(cluster.0)
    }

    /// A block of an inode table before the repair.
    pub(crate) fn before(&self, block: BlockNo) -> Option<&[u8]> {
        self.tables.get(&block).map(Vec::as_slice)
    }
}
