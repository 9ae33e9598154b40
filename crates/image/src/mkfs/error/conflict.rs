//! Options that exclude or need each other.

/// Options that exclude or need each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Conflict {
    /// `metadata_csum_seed` without `metadata_csum`.
    #[error("the metadata_csum_seed feature requires the metadata_csum feature")]
    SeedWithoutChecksums,
    /// `orphan_file` without a journal.
    #[error("cannot set orphan_file feature without a journal")]
    OrphanFileWithoutJournal,
    /// `orphan_file_size` without `orphan_file`.
    #[error("orphan_file_size requires the orphan_file feature")]
    OrphanFileSize,
    /// Features with revision 0.
    #[error("file system features are not supported with revision 0")]
    FeaturesInRevision0,
    /// `sparse_super` with revision 0.
    #[error("sparse superblocks are not supported with revision 0")]
    SparseSuperInRevision0,
    /// `-E resize=` with revision 0.
    #[error("on-line resizing is not supported with revision 0")]
    ResizeInRevision0,
    /// `64bit` without `extents`.
    #[error("extents must be enabled for a 64-bit file system: pass -O extents to rectify")]
    Bit64WithoutExtents,
    /// A size that needs `64bit`, without `extents`.
    #[error("extents must be enabled for a 64-bit file system")]
    SizeWithoutExtents,
    /// `bigalloc` without `extents`.
    #[error("cannot support the bigalloc feature without the extents feature")]
    BigallocWithoutExtents,
    /// `resize_inode` with `meta_bg`.
    #[error(
        "the resize_inode and meta_bg features are not compatible: they cannot both be enabled"
    )]
    ResizeInodeWithMetaBg,
    /// `resize_inode` without `sparse_super`.
    #[error("reserved online resize blocks not supported on non-sparse filesystem")]
    ResizeInodeWithoutSparseSuper,
    /// `-C` without `bigalloc`.
    #[error("specifying a cluster size requires the bigalloc feature")]
    ClusterSizeWithoutBigalloc,
    /// Clusters that are smaller than blocks.
    #[error("the cluster size may not be smaller than the block size")]
    ClusterBelowBlock,
    /// Clusters so large that a group's block count does not fit its field.
    #[error("the clusters are too large for a block group")]
    ClusterTooLarge,
    /// `inline_data` with inodes of 128 bytes.
    #[error("128 byte inodes are too small for inline data; specify larger size")]
    InodesTooSmallForInlineData,
    /// `project` with inodes of 128 bytes.
    #[error("128 byte inodes are too small for project quota")]
    InodesTooSmallForProject,
    /// `desc_size` without `64bit`.
    #[error("desc_size requires '-O 64bit'")]
    DescSizeWithout64Bit,
    /// `-G` without `flex_bg`.
    #[error("flex_bg feature not enabled, so flex_bg size may not be specified")]
    FlexBgSizeWithoutFlexBg,
    /// `encoding_flags` without `encoding`.
    #[error("an encoding must be specified when encoding_flags are passed")]
    EncodingFlagsAlone,
    /// A volume to be filled, without `extents`.
    #[error("a volume is filled with extents only")]
    FillWithoutExtents,
    /// Bad blocks with `bigalloc`.
    #[error("bad blocks cannot be kept out of clusters")]
    BadBlocksInClusters,
}
