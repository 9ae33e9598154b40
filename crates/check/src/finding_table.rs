// The table of findings, sorted by pass. Texts are close to those of e2fsck, for scripts and users.
findings! {
    // Pass 0: before the passes.
    /// No primary superblock, or an invalid one.
    SuperblockInvalid: 0, Damage, "Superblock invalid, trying backup blocks... ({detail})", "Fix", true;
    /// A damaged block of metadata whose last content the journal's log still holds.
    LogCopyCertain: 0, Safe, "Block {block} is corrupt; the journal holds its last content ({detail}, transaction {found}).", "Restore", true;
    /// A damaged block of metadata of which the journal's log holds a copy that may be older than
    /// its last content.
    LogCopyPossiblyOlder: 0, Damage, "Block {block} is corrupt; the journal holds a copy that is possibly older ({detail}, transaction {found}).", "Restore", true;
    /// A block of an inode table or a directory lies in the place of another, by its checksums.
    BlockMisplaced: 0, Damage, "Block {block} holds {detail} that belong to block {expected}, by their checksums.", "Put them there", true;
    /// The record of an inode lies in the place of another inode's, by its checksum.
    InodeMisplaced: 0, Damage, "Inode {inode} has the record of inode {expected}, by its checksum.", "Put it there", true;
    /// The superblock is valid except for its checksum, and there is no backup.
    SuperblockChecksum: 0, Damage, "Superblock checksum does not match superblock.", "Fix", true;
    /// The count of inodes is not that of the groups.
    InodesCountWrong: 0, Damage, "inode count in superblock is {found}, should be {expected}.", "Fix", true;
    /// Groups cannot have that many inodes, and the count of all inodes gives the right number.
    InodesPerGroupWrong: 0, Damage, "inodes per group in superblock is {found}, should be {expected}.", "Fix", true;
    /// The blocks of a group do not fit the count of inodes, and the clusters of a group do.
    BlocksPerGroupWrong: 0, Damage, "blocks per group in superblock is {found}, should be {expected}.", "Fix", true;
    /// The first group whose descriptors lie in the groups is past the last one.
    FirstMetaBgTooLarge: 0, Damage, "First_meta_bg is too big ({found}); it should be {expected}.", "Fix", true;
    /// An impossible number of groups in a flex group.
    FlexGroupsTooLarge: 0, Damage, "Superblock has 2^{found} groups in a flex group; it should be 2^{expected}.", "Fix", true;
    /// More blocks are reserved for descriptors than precede the first table, and there is no
    /// backup.
    ReservedGdtWrong: 0, Damage, "s_reserved_gdt_blocks is {found}, should be {expected}.", "Fix", true;
    /// The primary superblock has features that this version does not know, and a backup has none
    /// of them.
    FeaturesUnknown: 0, Damage, "Superblock has unsupported feature(s): {detail}. The backup of group {group} does not have them (-b takes it).", "Use the backup", false;
    /// The device ends before the volume.
    DeviceTooSmall: 0, Fatal, "The filesystem size (according to the superblock) is {found} blocks; the physical size of the device is {expected} blocks. Either the superblock or the partition table is likely to be corrupt!", "", true;
    /// The first revision has no features.
    FeaturesOfRevisionZero: 0, Safe, "Filesystem has feature flag(s) set, but is a revision 0 filesystem.", "Fix", true;
    /// The first revision has inodes of 128 bytes, and the features are those of a later one.
    InodeSizeOfRevisionZero: 0, Damage, "Filesystem has feature flag(s) set and inodes of {found} bytes, but is a revision 0 filesystem.", "Fix", true;
    /// The format has no such revision.
    RevisionTooHigh: 0, Damage, "The filesystem revision is {found}, which is too high; it should be {expected}.", "Fix", true;
    /// Clusters are blocks where the feature does not make them larger.
    ClustersWithoutBigalloc: 0, Damage, "Superblock has {found} clusters per group without bigalloc; there should be {expected} of one block each.", "Fix", true;
    /// A seed of checksums that nothing uses.
    ChecksumSeedNeedless: 0, Safe, "Superblock metadata_csum_seed is not necessary without metadata_csum.", "Fix", true;
    /// Two kinds of checksums at once.
    ChecksumFeaturesBoth: 0, Safe, "metadata_csum supersedes uninit_bg; both feature bits cannot be set simultaneously.", "Fix", true;
    /// Descriptors cannot be reserved at the start and lie in their groups.
    ResizeInodeWithMetaBg: 0, Damage, "Resize_inode and meta_bg features are enabled. Those features are not compatible. Resize inode should be disabled.", "Fix", true;
    /// Blocks are reserved for descriptors, and no inode owns them.
    ReservedGdtNeedless: 0, Damage, "Filesystem does not have resize_inode enabled, but s_reserved_gdt_blocks is {found}; should be zero.", "Fix", true;
    /// The Hurd reads no types in entries.
    HurdFiletype: 0, Damage, "The Hurd does not support the filetype feature.", "Clear", true;
    /// The volume is older than UUIDs.
    UuidMissing: 0, Note, "Filesystem did not have a UUID; generating one.", "Fix", true;
    /// The size of extra fields that every inode has, or should have, cannot be.
    ExtraIsizeBad: 0, Damage, "Bad {detail} extra isize in superblock ({found}).", "Fix", true;
    /// The inode of a quota file is invalid.
    QuotaInodeBad: 0, Damage, "Invalid {detail} quota inode {found}.", "Fix", true;
    /// The number of a quota inode is invalid, on a volume without that feature.
    QuotaNumberNeedless: 0, Damage, "Invalid {detail} quota inode {found}, without that feature.", "Fix", true;
    /// A file is said to be one of a quota that the volume does not have.
    QuotaInodeHidesFile: 0, Damage, "Inode {inode} is said to be the {detail} quota file, without that feature.", "Fix", true;
    /// A time of the superblock lies ahead.
    TimeInFuture: 0, Note, "Superblock last {detail} time ({found}, now = {expected}) is in the future.", "Fix", true;
    /// More than half of the blocks are reserved.
    ReservedBlocksTooMany: 0, Damage, "{found} blocks are reserved: more than half of the volume.", "Fix", true;
    /// Orphans are said to be in a file that the volume does not have.
    OrphanPresentWithoutFile: 0, Safe, "Feature orphan_present is set but filesystem does not have an orphan file.", "Clear", true;
    /// A file of orphans is named on a volume without that feature.
    OrphanFileWithoutFeature: 0, Damage, "Superblock names inode {inode} as an orphan file without the feature.", "Clear", true;
    /// A volume without a journal has a file of orphans.
    OrphanFileWithoutJournal: 0, Safe, "Superblock has orphan file (inode {inode}) without journal.", "Clear", true;
    /// The orphan file is invalid.
    OrphanFileInvalid: 0, Safe, "The orphan file (inode {inode}) is invalid: {detail}.", "Fix", true;
    /// A block of the orphan file is invalid, or lists inodes that are not orphans.
    OrphanBlockInvalid: 0, Safe, "Orphan file (inode {inode}) block #{file_block} ({block}) is not clean: {detail}.", "Clear", true;
    /// The MMP block lies off the volume.
    MmpBlockInvalid: 0, Safe, "Superblock has invalid MMP block {block}.", "Clear", true;
    /// The MMP block has no valid magic number.
    MmpMagic: 0, Safe, "Superblock has invalid MMP magic ({found}).", "Fix", true;
    /// The MMP block's checksum does not match.
    MmpChecksum: 0, Safe, "Superblock MMP block checksum does not match.", "Fix", true;
    /// A journal is named, but the feature is off.
    JournalWithoutFeature: 0, Note, "Superblock has_journal flag is clear, but a journal is present.", "Clear", true;
    /// An external journal is named in addition to the internal one.
    JournalPlaceAmbiguous: 0, Safe, "Superblock has both an internal and an external journal.", "Clear", true;
    /// The recovery flag is set without a journal.
    RecoveryWithoutJournal: 0, Safe, "Superblock needs_recovery flag is set, but no journal is present.", "Clear", true;
    /// The journal's inode or superblock is invalid.
    JournalInvalid: 0, Safe, "Superblock has an invalid journal (inode {inode}).", "Clear", true;
    /// The journal's inode is broken, but a copy in the superblock or what is left of it says where
    /// the journal lies.
    JournalInodeBroken: 0, Safe, "The journal inode {inode} is broken ({detail}), but the place of the journal is known.", "Restore", true;
    /// The superblock has no copy of the journal inode's map, or an old one.
    JournalBackup: 0, Note, "Backing up journal inode block information.", "Fix", true;
    /// The journal's superblock is broken.
    JournalSuperblockCorrupt: 0, Safe, "Journal superblock is corrupt ({detail}).", "Fix", true;
    /// A journal of version 1 has fields of version 2.
    JournalV1Fields: 0, Safe, "Found invalid V2 journal superblock fields (from V1 journal).", "Clear", true;
    /// The journal lies on another device, which was not named.
    JournalExternal: 0, Note, "Journal is external; not checked.", "", true;
    /// The superblock stores another number than the journal's device has: the kernel does not find
    /// it.
    JournalDeviceNumber: 0, Note, "Superblock hint for external superblock should be {detail}.", "Fix", true;
    /// The journal is not replayed, since nothing may be written.
    JournalSkipped: 0, Note, "Warning: skipping journal recovery because doing a read-only filesystem check.", "", true;
    /// The journal is replayed.
    JournalRecovered: 0, Note, "recovering journal", "", true;
    /// The journal holds transactions, but the recovery flag is clear.
    JournalHasData: 0, Damage, "Superblock needs_recovery flag is clear, but journal has data.", "Run journal anyway", true;
    /// The journal holds transactions that are to be discarded.
    JournalDataLeft: 0, Damage, "The journal still has data.", "Clear journal", true;
    /// The replay could not be done.
    JournalReplayFailed: 0, Damage, "The journal cannot be replayed ({detail}).", "Clear journal", true;
    /// Fast commits hold an inode in use that its table has lost.
    FastCommitInode: 0, Damage, "The inode table has lost inode {inode}, which fast commits of the journal hold.", "Restore", true;
    /// Fast commits of an inode that cannot be replayed on the volume as it is.
    FastCommitsLeftOut: 0, Damage, "The fast commits of inode {inode} cannot be replayed ({detail}): changes that they alone hold are lost.", "Leave them out", true;
    /// A transaction of the journal does not verify.
    JournalTransactionCorrupt: 0, Note, "Journal transaction {found} was corrupt, replay was aborted.", "", true;
    /// A block in the journal does not verify.
    JournalBlockCorrupt: 0, Safe, "Journal checksum error found ({detail}).", "Leave it out", true;
    /// A revoke block in the journal does not verify.
    JournalRevokeCorrupt: 0, Safe, "Invalid revoke block in the journal ({detail}); nothing was replayed.", "Clear journal", true;
    /// The kernel left an error in the journal.
    JournalErrno: 0, Note, "The journal records error {found}.", "", true;
    /// The journal was taken off.
    JournalDeleted: 0, Note, "*** journal has been deleted ***", "", true;
    /// A group's bitmaps or inode table lie off the volume; a backup knows better.
    GroupDescInvalid: 0, Damage, "Group descriptor {group} looks bad ({detail}), trying backup blocks...", "Fix", true;
    /// One of a group's tables lies off the volume, or without flex_bg outside of its group, and
    /// there is no backup.
    GroupTablePlace: 0, Damage, "Group {group}'s {detail} cannot lie at {block}; it belongs at {expected}.", "Relocate", true;
    /// The descriptor has no place for a bitmap, which is made again from what is in use.
    GroupBitmapMissing: 0, Safe, "Group {group}'s {detail} is missing; it belongs at {expected}.", "Relocate", true;
    /// The descriptor gives a wrong location for one of a group's tables: a backup has another, or
    /// mkfs puts it elsewhere.
    GroupTableMoved: 0, Damage, "Group {group}'s {detail} is not at {block}; it is at {expected}.", "Fix", true;
    /// A group's descriptor checksum does not match.
    GroupDescChecksum: 0, Safe, "Group descriptor {group} checksum is {detail}.", "Fix", true;
    /// A group has more never-used inodes than free ones.
    GroupUnusedImpossible: 0, Safe, "Group descriptor {group} has invalid unused inodes count {found}.", "Fix", true;
    /// A group is marked as never used on a volume without that feature.
    GroupUninitWithoutFeature: 0, Safe, "Group descriptor {group} marked uninitialized without feature set.", "Fix", true;
    /// The bitmap of the last group cannot be implied: it is shorter than others.
    LastGroupUninit: 0, Safe, "Last group block bitmap uninitialized.", "Fix", true;
    /// The orphan list contains an inode that is not an orphan.
    OrphanListIllegal: 0, Safe, "Illegal inode {inode} in orphaned inode list.", "Clear", true;
    /// An orphan's deletion is finished.
    OrphanCleared: 0, Note, "Clearing orphaned inode {inode} {detail}", "", true;
    /// An orphan's truncation is finished.
    OrphanTruncated: 0, Note, "Truncating orphaned inode {inode} {detail}", "", true;
    /// The resize inode's map is not what the reserved descriptor blocks need.
    ResizeInodeInvalid: 0, Damage, "Resize inode not valid.", "Recreate", true;

    // Pass 1: inodes and their maps.
    /// The root inode is something else than a directory.
    RootNotDirectory: 1, Damage, "Root inode is not a directory.", "Clear", true;
    /// The root inode has a time of deletion.
    RootHasDtime: 1, Safe, "Root inode has dtime set (probably due to old mke2fs).", "Fix", true;
    /// A reserved inode is of a type that it cannot be.
    ReservedInodeMode: 1, Safe, "Reserved inode {inode} has invalid mode.", "Clear", true;
    /// The resize inode has content, on a volume without that feature.
    ResizeInodeNotInUse: 1, Damage, "Resize_inode not enabled, but the resize inode is non-zero.", "Clear", true;
    /// A deleted inode has no time of deletion.
    DeletedWithoutDtime: 1, Safe, "Deleted inode {inode} has zero dtime.", "Fix", true;
    /// An inode in use has a time of deletion.
    InUseWithDtime: 1, Safe, "Inode {inode} is in use, but has dtime set.", "Fix", true;
    /// An inode in use is linked into an orphan list that nothing leads to.
    OrphanListLeftover: 1, Damage, "Inode {inode} was part of a corrupted orphan linked list.", "Fix", true;
    /// One of a group's tables lies off the volume, and where it belongs there is something else.
    GroupTableLost: 1, Damage, "Group {group}'s {detail} at {block} is off the volume, and its place is taken.", "Allocate a new one", true;
    /// A bitmap or inode table lies on something else of the volume's own.
    TableConflict: 1, Damage, "Group {group}'s {detail} at {block} conflicts with some other fs block.", "Relocate", true;
    /// A bitmap or inode table lies in a bad block.
    TableInBadBlock: 1, Damage, "Group {group}'s {detail} ({block}) is bad.", "Relocate", true;
    /// `i_size` does not fit what is mapped.
    InodeSizeWrong: 1, Safe, "Inode {inode}, i_size is {found}, should be {expected}.", "Fix", true;
    /// `i_blocks` does not fit what is mapped.
    InodeBlocksWrong: 1, Safe, "Inode {inode}, i_blocks is {found}, should be {expected}.", "Fix", true;
    /// A pointer of an indirect map leads off the volume.
    IllegalBlock: 1, Damage, "Illegal block #{file_block} ({block}) in inode {inode}.", "Clear", true;
    /// The map has too many pointers off the volume to be one.
    TooManyIllegalBlocks: 1, Damage, "Too many illegal blocks in inode {inode}.", "Clear", true;
    /// An indirect block or extent node lies on the volume's own metadata.
    MapOnMetadata: 1, Damage, "Inode {inode} block {block} conflicts with critical metadata, skipping block checks.", "Clear", true;
    /// The inode that lists bad blocks is invalid.
    BadBlocksInodeInvalid: 1, Damage, "The bad block inode looks invalid.", "Clear", true;
    /// The list of bad blocks has what everything begins with.
    BadBlockPrimary: 1, Damage, "The primary superblock or descriptors ({block}) are on the bad block list.", "Clear", true;
    /// The list of bad blocks leads off the volume.
    BadBlockIllegal: 1, Damage, "Illegal block #{file_block} ({block}) in bad block inode.", "Clear", true;
    /// The journal's inode holds something though the volume has no journal there.
    JournalNotInUse: 1, Safe, "Journal inode is not in use, but contains data.", "Clear", true;
    /// A quota inode has content, on a volume without that quota.
    QuotaNotInUse: 1, Safe, "Quota inode {inode} is not in use, but contains data.", "Clear", true;
    /// A quota inode is not a regular file.
    QuotaInodeMode: 1, Safe, "Quota inode {inode} is not regular file.", "Clear", true;
    /// The journal's inode is not a regular file.
    JournalInodeMode: 1, Safe, "Journal inode is not regular file.", "Fix", true;
    /// A directory is longer than a directory may be.
    DirectoryTooBig: 1, Damage, "Inode {inode} is too big: block #{file_block} ({block}).", "Truncate", true;
    /// A file has blocks past the largest file.
    FileTooBig: 1, Damage, "Inode {inode} is too big: block #{file_block} ({block}).", "Truncate", true;
    /// A device, FIFO or socket has a size.
    SpecialWithSize: 1, Safe, "Special (device/socket/fifo) inode {inode} has non-zero size.", "Fix", true;
    /// A device, FIFO, socket or symbolic link is immutable or append-only.
    SpecialImmutable: 1, Note, "Special (device/socket/fifo/symlink) inode {inode} has immutable or append-only flag set.", "Clear", true;
    /// A device, FIFO or socket says it has extents or inline data.
    SpecialWithMap: 1, Damage, "Special (device/socket/fifo) file (inode {inode}) has extents or inline-data flag set.", "Clear", true;
    /// The extra size of an inode cannot be.
    ExtraSizeInvalid: 1, Safe, "Inode {inode} has a extra size ({found}) which is invalid.", "Fix", true;
    /// The name of an attribute in an inode is longer than the space.
    EaInInodeInvalid: 1, Safe, "Extended attribute in inode {inode} is invalid: {detail}.", "Clear", true;
    /// Entries and values of attributes in an inode overlap.
    EaInInodeCollision: 1, Damage, "Inode {inode} extended attribute is corrupt (allocation collision).", "Clear", true;
    /// The stored hash of an attribute in an inode is wrong.
    EaInInodeHash: 1, Safe, "Extended attribute in inode {inode} has a hash ({found}) which is invalid.", "Clear", true;
    /// The attribute block is corrupt.
    EaBlockCorrupt: 1, Damage, "Extended attribute block {block} of inode {inode} is corrupt: {detail}.", "Clear", true;
    /// A block of attributes is sound but for its checksum.
    EaBlockChecksum: 1, Damage, "Extended attribute block {block} of inode {inode} passes checks, but checksum does not match block.", "Fix", true;
    /// More or fewer inodes share a block of attributes than it says.
    EaBlockRefcount: 1, Damage, "Extended attribute block {block} has reference count {found}, should be {expected}.", "Fix", true;
    /// An attribute names an inode for its value that holds none.
    EaValueInode: 1, Safe, "Inode {inode} has illegal extended attribute value inode {found}.", "Clear", true;
    /// The size of an attribute is not that of the inode with its value, and the hash is.
    EaValueSize: 1, Safe, "Extended attribute in inode {inode} has a value of {found} bytes, should be {expected}.", "Fix", true;
    /// An attribute stores its value in an inode, on a volume that lost the feature flag.
    EaInodeFeatureMissing: 1, Damage, "Inode {inode} has EA inode {found}, but superblock is missing EA_INODE feature.", "Fix", true;
    /// The inode of a value lacks its flag.
    EaInodeWithoutFlag: 1, Safe, "EA inode {found} for parent inode {inode} missing EA_INODE flag.", "Fix", true;
    /// Another inode than a regular file has the flag of inodes that hold values.
    EaInodeFlagOnOther: 1, Damage, "Inode {inode} has the ea_inode flag set but is not a regular file.", "Clear flag", true;
    /// Casefold on something else than a directory, or without the feature.
    CasefoldFlag: 1, Damage, "Inode {inode} has the casefold flag set but {detail}.", "Clear flag", true;
    /// The verity flag on a volume without the feature, and no room for a hash tree after the
    /// file's end.
    VerityFlag: 1, Safe, "Inode {inode} has the verity flag set but the verity feature is not enabled.", "Clear flag", true;
    /// A file with the verity flag and blocks past its end, on a volume that lost the feature flag.
    VerityFeatureMissing: 1, Safe, "Inode {inode} is a verity file, but superblock is missing VERITY feature.", "Fix", true;
    /// The unencrypted flag.
    EncryptWithoutContext: 1, Damage, "Inode {inode} has encrypt flag but no encryption extended attribute.", "Clear flag", true;
    /// The encryption context is broken.
    EncryptionCorrupt: 1, Damage, "Encrypted inode {inode} has corrupt encryption extended attribute.", "Clear inode", true;
    /// A mode without type, but the content is a directory's.
    LooksLikeDirectory: 1, Damage, "Inode {inode} is a unknown file type with mode {found} but it looks like it is really a directory.", "Fix", true;
    /// The target of a symbolic link is stored in the inode although its flag says that a map is.
    SymlinkWithExtents: 1, Damage, "Inode {inode} is a fast symlink with EXTENTS_FL flag set.", "Clear flag", true;
    /// The flag of extents on a map of indirect blocks.
    ExtentsFlagOnPointers: 1, Damage, "Inode {inode} has EXTENTS_FL flag set, but is block mapped on filesystem without extents support.", "Clear flag", true;
    /// Extents on a volume that has none.
    ExtentsWithoutFeature: 1, Damage, "Inode {inode} has EXTENTS_FL flag set on filesystem without extents support.", "Clear", true;
    /// Valid extents on a volume that lost the feature flag.
    ExtentsFeatureMissing: 1, Damage, "Inode {inode} is in extent format, but superblock is missing EXTENTS feature.", "Fix", true;
    /// The map has the format of extents, but the flag is missing.
    ExtentsFlagMissing: 1, Safe, "Inode {inode} missing EXTENT_FL, but is in extents format.", "Fix", true;
    /// The root of an extent tree is broken.
    ExtentHeaderCorrupt: 1, Damage, "Inode {inode} has corrupt extent header.", "Clear inode", true;
    /// A node of an extent tree is broken.
    ExtentNodeInvalid: 1, Damage, "Inode {inode} has an invalid extent node (blk {block}, lblk {file_block}).", "Clear", true;
    /// A node of an extent tree says another level than the one above it.
    ExtentNodeLevel: 1, Safe, "Inode {inode} has an extent node (block {block}) of level {found}, should be {expected}.", "Fix", true;
    /// A node of an extent tree is sound but for its checksum.
    ExtentNodeChecksum: 1, Damage, "Inode {inode} extent block passes checks, but checksum does not match extent (block {block}).", "Fix", true;
    /// A header of an extent tree says room for fewer entries than there is.
    ExtentHeaderLimit: 1, Damage, "Inode {inode} has an extent header for {found} entries where {expected} have room.", "Fix", true;
    /// An extent leads off the volume.
    ExtentInvalidStart: 1, Damage, "Inode {inode} has an invalid extent (logical block {file_block}, invalid physical block {block}, len {found}).", "Clear", true;
    /// An extent ends off the volume or past the largest file.
    ExtentInvalidLength: 1, Damage, "Inode {inode} has an invalid extent (logical block {file_block}, physical block {block}, invalid len {found}).", "Clear", true;
    /// An extent starts before the one before ends.
    ExtentOutOfOrder: 1, Damage, "Inode {inode} has out of order extents (invalid logical block {file_block}, physical block {block}, len {found}).", "Clear", true;
    /// An extent has more blocks than the next extent, the end of the volume, or a directory's own
    /// blocks allow.
    ExtentTooLong: 1, Damage, "Inode {inode} has an extent (logical block {file_block}, physical block {block}) of {found} blocks, should be {expected}.", "Cut", true;
    /// An extent says another logical block than the one that its neighbours leave to it.
    ExtentMisplaced: 1, Damage, "Inode {inode} has an extent at logical block {file_block} (physical block {block}, len {found}), should be at {expected}.", "Move", true;
    /// An extent of no block.
    ExtentZeroLength: 1, Damage, "Inode {inode} has zero length extent (invalid logical block {file_block}, physical block {block}).", "Clear", true;
    /// An index entry says another first block than the node below it.
    ExtentIndexStart: 1, Damage, "Interior extent node level {found} of inode {inode}: Logical start {file_block} does not match logical start {expected} at next level.", "Fix", true;
    /// An extent tree that is deeper than any file needs.
    ExtentTreeBeyondLimit: 1, Note, "Inode {inode} extent tree could be more shallow ({found}; could be <= {expected}).", "Fix", true;
    /// An extent tree that is deeper than its extents need.
    ExtentTreeTooDeep: 1, Note, "Inode {inode} extent tree (at level {found}) could be shorter.", "Optimize", true;
    /// A directory has an unwritten extent.
    UnwrittenDirectory: 1, Safe, "Directory inode {inode} has extent marked uninitialized at block {file_block}.", "Fix", true;
    /// A directory has a hole.
    DirectoryHole: 1, Damage, "Directory inode {inode} block {found} should be at block {file_block}.", "Fix", true;
    /// Bigalloc: a block lies at another place of its cluster than its logical block of the logical
    /// cluster.
    ClusterMisaligned: 1, Damage, "Inode {inode} logical block {file_block} (physical block {block}) violates cluster allocation rules.", "Fix", true;
    /// Bigalloc: a map of indirect blocks.
    BlockMappedOnBigalloc: 1, Damage, "Inode {inode} on bigalloc filesystem cannot be block mapped.", "Fix", true;
    /// A map of indirect blocks that is to become extents.
    MapToExtents: 1, Note, "Inode {inode} is block mapped.", "Convert to extents", true;
    /// The record is sound but for its checksum.
    InodeChecksum: 1, Safe, "Inode {inode} passes checks, but checksum does not match inode.", "Fix", true;
    /// The record is sound but for its checksum, and so is every other one of its block: they may
    /// be those of other inodes.
    InodeBlockChecksum: 1, Damage, "Inode {inode} passes checks, but no inode in its block of the inode table matches its checksum.", "Fix", true;
    /// A whole block of the inode table is garbage.
    InodeGarbage: 1, Damage, "Inode {inode} seems to contain garbage.", "Clear", true;
    /// The record of another inode, in use itself, lies in the place of this one's.
    InodeIsCopy: 1, Damage, "Inode {inode} is a copy of inode {found}, by its checksum.", "Empty", true;
    /// Inline data on a volume without them.
    InlineWithoutFeature: 1, Damage, "Inode {inode} has INLINE_DATA_FL flag on filesystem without inline data support.", "Clear", true;
    /// Valid inline data on a volume that lost the feature flag.
    InlineFeatureMissing: 1, Safe, "Inode {inode} has inline data, but superblock is missing INLINE_DATA feature.", "Fix", true;
    /// The flag of inline data without the attribute that holds their rest.
    InlineWithoutAttribute: 1, Damage, "Inode {inode} has INLINE_DATA_FL flag but extended attribute not found.", "Truncate", true;
    /// Both flags; the map is an extent tree.
    InlineAndExtentsIsExtents: 1, Damage, "Inode {inode} has extent header but inline data flag is set.", "Fix", true;
    /// Both flags; the data are inline.
    InlineAndExtentsIsInline: 1, Damage, "Inode {inode} seems to have inline data but extent flag is set.", "Fix", true;
    /// Both flags; the map is one of indirect blocks.
    InlineAndExtentsIsMap: 1, Damage, "Inode {inode} seems to have block map but inline data and extent flags set.", "Fix", true;
    /// Both flags, and neither format is valid.
    InlineAndExtentsIsJunk: 1, Damage, "Inode {inode} has inline data and extent flags set but i_block contains junk.", "Clear inode", true;
    /// A time whose epoch bits are those that only a bug of old kernels produces.
    TimeBeyond: 1, Safe, "Timestamp(s) on inode {inode} beyond 2310-04-04 are likely pre-1970.", "Fix", true;
    /// The index flag on something that cannot have an index.
    IndexFlagOnOther: 1, Safe, "Inode {inode} has INDEX_FL flag set but is not a directory.", "Clear HTree index", true;
    /// The index flag on a volume without them.
    IndexWithoutFeature: 1, Damage, "Inode {inode} has INDEX_FL flag set on filesystem without htree support.", "Clear HTree index", true;
    /// The imagic flag on a volume without the feature.
    ImagicFlag: 1, Damage, "Inode {inode} has imagic flag set.", "Clear", true;
    /// A file claims blocks that something else claims too.
    MultiplyClaimed: 1, Damage, "Multiply-claimed block(s) in inode {inode}: {detail}.", "Clone multiply-claimed blocks", true;
    /// Files share blocks, which the volume allows, and are to have blocks of their own.
    SharedBlocks: 1, Note, "Inode {inode} shares block(s): {detail}.", "Clone shared blocks", true;
    /// A file that claims blocks that something else claims too, not to be cloned.
    MultiplyClaimedDelete: 1, Damage, "Inode {inode} has multiply-claimed blocks.", "Delete file", true;
    /// There was no room to clone.
    CloneFailed: 1, Damage, "Couldn't clone file (inode {inode}): {detail}.", "", true;
    /// A directory whose inode is lost: its blocks are found among those that nothing claims.
    DirectoryInodeLost: 1, Damage, "Directory {inode} has lost its inode; {found} of its blocks are found, the first at {block}.", "Restore", true;
    /// An encrypted directory whose inode is lost: its names cannot be read without what was there.
    EncryptedDirectoryLost: 1, Note, "Directory {inode} of directory {dir} has lost its inode; its blocks are found, the first at {block}, but the nonce that its encrypted names need was in the inode.", "", true;
    /// Blocks of a directory whose map does not lead to them.
    DirectoryBlocksLost: 1, Damage, "The map of directory {inode} has lost {found} of its blocks, the first at {block}.", "Append", true;

    // Pass 2: directories.
    /// An entry names an inode that cannot be.
    EntryBadInode: 2, Damage, "Entry '{name}' in {where} has invalid inode #: {found}.", "Clear", true;
    /// An entry names an inode that is not in use.
    EntryUnusedInode: 2, Safe, "Entry '{name}' in {where} has deleted/unused inode {inode}.", "Clear", true;
    /// An entry names an inode past the high-water mark of its group, and it is not in use.
    EntryNeverUsedInode: 2, Damage, "Entry '{name}' in {where} has never used inode {inode}.", "Clear", true;
    /// An entry names its own directory.
    EntryLinkToDot: 2, Damage, "Entry '{name}' in {where} is a link to '.'", "Clear", true;
    /// An entry names an inode whose record lies in a bad block.
    EntryInBadBlock: 2, Damage, "Entry '{name}' in {where} points to inode ({inode}) located in a bad block.", "Clear", true;
    /// An entry names a directory that has a name already.
    EntryLinkToDirectory: 2, Damage, "Entry '{name}' in {where} is a link to directory {inode}.", "Clear", true;
    /// A directory has several entries.
    DirectoryLinkedTwice: 2, Damage, "Directory {inode} has more than one entry.", "", true;
    /// An entry names the root.
    EntryLinkToRoot: 2, Damage, "Entry '{name}' in {where} is a link to the root directory.", "Clear", true;
    /// An entry names an inode that holds the value of an attribute.
    EntryEaInode: 2, Damage, "Entry '{name}' in {where} references EA inode {inode}.", "Clear", true;
    /// A name contains an invalid byte.
    EntryBadCharacters: 2, Damage, "Entry '{name}' in {where} has illegal characters in its name.", "Fix", true;
    /// The directory does not name itself.
    MissingDot: 2, Damage, "Missing '.' in directory inode {dir}.", "Fix", true;
    /// The directory does not name its parent.
    MissingDotDot: 2, Damage, "Missing '..' in directory inode {dir}.", "Fix", true;
    /// Another record is in the place of `.`.
    FirstEntryNotDot: 2, Damage, "First entry '{name}' (inode={inode}) in directory inode {dir} should be '.'", "Fix", true;
    /// Another record is in the place of `..`.
    SecondEntryNotDotDot: 2, Damage, "Second entry '{name}' (inode={inode}) in directory inode {dir} should be '..'", "Fix", true;
    /// `.` names another inode.
    DotWrong: 2, Damage, "Entry '.' in directory inode {dir} is {found}, should be {expected}.", "Fix", true;
    /// `.` has bytes after its name that are not zero.
    DotNotTerminated: 2, Damage, "'.' directory entry in directory inode {dir} is not NULL terminated.", "Fix", true;
    /// `..` has bytes after its name that are not zero.
    DotDotNotTerminated: 2, Damage, "'..' directory entry in directory inode {dir} is not NULL terminated.", "Fix", true;
    /// The record of `.` takes more than it needs.
    DotTooBig: 2, Safe, "Directory entry for '.' in {where} is big.", "Split", true;
    /// A second `.`.
    DuplicateDot: 2, Damage, "Entry '{name}' in {where} is duplicate '.' entry.", "Fix", true;
    /// A second `..`.
    DuplicateDotDot: 2, Damage, "Entry '{name}' in {where} is duplicate '..' entry.", "Fix", true;
    /// The chain of records is broken.
    DirectoryCorrupted: 2, Damage, "Directory inode {dir}, block #{file_block}, offset {found}: directory corrupted.", "Salvage", true;
    /// A record is shorter than its name.
    /// A name without length.
    EntryEmptyName: 2, Damage, "Entry '{name}' in {where} has a zero-length name.", "Clear", true;
    /// A directory has a hole.
    DirectoryBlockMissing: 2, Damage, "Directory inode {dir} has an unallocated block #{file_block}.", "Allocate", true;
    /// A file of a mode that means nothing.
    InodeModeInvalid: 2, Damage, "Inode {inode} ({entry}) has invalid mode ({detail}).", "Clear", true;
    /// A device number that cannot be.
    CharDeviceIllegal: 2, Damage, "Inode {inode} ({entry}) is an illegal character device.", "Clear", true;
    /// A device number that cannot be.
    BlockDeviceIllegal: 2, Damage, "Inode {inode} ({entry}) is an illegal block device.", "Clear", true;
    /// A FIFO with something in its block map.
    FifoIllegal: 2, Damage, "Inode {inode} ({entry}) is an illegal FIFO.", "Clear", true;
    /// A socket with something in its block map.
    SocketIllegal: 2, Damage, "Inode {inode} ({entry}) is an illegal socket.", "Clear", true;
    /// A symbolic link whose length, target or location is impossible.
    SymlinkInvalid: 2, Damage, "Symlink (inode #{inode}, {entry}) is invalid.", "Clear", true;
    /// A field that must be zero is not.
    FieldNotZero: 2, Damage, "{detail} for inode {inode} ({entry}) is {found}, should be zero.", "Clear", true;
    /// A high half that the volume does not have is not zero.
    HighFieldNotZero: 2, Safe, "{detail} for inode {inode} ({entry}) is {found}, should be zero.", "Clear", true;
    /// The block of attributes lies off the volume.
    EaBlockOffVolume: 2, Damage, "Extended attribute block for inode {inode} ({entry}) is invalid ({block}).", "Clear", true;
    /// The entry says another type than the inode.
    FileTypeWrong: 2, Damage, "Entry '{name}' in {where} has an incorrect filetype (was {found}, should be {expected}).", "Fix", true;
    /// The entry lacks the type.
    FileTypeMissing: 2, Safe, "Setting filetype for entry '{name}' in {where} to {expected}.", "Fix", true;
    /// The entry has a type on a volume whose entries have none.
    FileTypeUnexpected: 2, Safe, "Entry '{name}' in {where} has filetype set.", "Clear", true;
    /// An inode past its group's high-water mark is named.
    EntryPastHighWater: 2, Safe, "Entry '{name}' in {where} references inode {inode} found in group {group}'s unused inodes area.", "Fix", true;
    /// An inode is named in a group whose inodes were never initialised.
    EntryInUninitGroup: 2, Safe, "Entry '{name}' in {where} references inode {inode} in group {group} where _INODE_UNINIT is set.", "Fix", true;
    /// Two entries of one name.
    DuplicateEntry: 2, Damage, "Duplicate entry '{name}' found in {where}.", "Rebuild directory", true;
    /// A name occurs twice with different inodes.
    NameNotUnique: 2, Damage, "Entry '{name}' in {where} has a non-unique filename, and could be called '{detail}'.", "Rename", true;
    /// A name that is not valid in the volume's encoding.
    NameNotUtf8: 2, Damage, "Entry '{name}' in {where} has illegal UTF-8 characters in its name.", "Fix", true;
    /// A record of an encrypted directory that is too short for a name.
    EncryptedNameTooShort: 2, Damage, "Encrypted entry '{name}' in {where} is too short.", "Clear", true;
    /// An encrypted directory names an unencrypted file.
    EncryptedNamesPlain: 2, Damage, "Encrypted entry '{name}' in {where} references unencrypted inode {inode}.", "Clear", true;
    /// An encrypted directory names a file of another policy.
    EncryptionPolicyDiffers: 2, Damage, "Encrypted entry '{name}' in {where} references inode {inode}, which has a different encryption policy.", "Clear", true;
    /// A block is sound but for its checksum.
    DirBlockChecksum: 2, Safe, "Directory inode {dir}, block #{file_block}: directory passes checks but fails checksum.", "Fix", true;
    /// A block has no tail for its checksum.
    DirBlockWithoutChecksum: 2, Safe, "Directory inode {dir}, block #{file_block}: directory has no checksum.", "Fix", true;
    /// The index of a directory does not lead to its names.
    HtreeInvalid: 2, Damage, "Invalid HTREE directory inode {dir}: {detail}.", "Clear HTree index", true;
    /// The root of an index is invalid: no name is at stake.
    HtreeRootInvalid: 2, Safe, "HTREE directory inode {dir} has an invalid root node: {detail}.", "Clear HTree index", true;
    /// The hashes of an index do not ascend.
    HtreeUnordered: 2, Safe, "Problem in HTREE directory inode {dir}: an unordered hash table.", "Clear HTree index", true;
    /// The root of an index fails its checksum.
    HtreeRootChecksum: 2, Safe, "Problem in HTREE directory inode {dir}: root node fails checksum.", "Clear HTree index", true;
    /// A node of an index fails its checksum.
    HtreeNodeChecksum: 2, Safe, "Problem in HTREE directory inode {dir}: internal node fails checksum.", "Clear HTree index", true;
    /// The directory in an inode is invalid.
    InlineDirectoryCorrupted: 2, Damage, "Inline directory inode {dir} size ({found}) must be a multiple of 4.", "Fix", true;
    /// A name whose inode is lost, where the options keep such names.
    EntryPlaceholder: 2, Safe, "Entry '{name}' in {where} has lost inode {inode}.", "Keep the name with an empty file", true;

    // Pass 3: connectivity.
    /// The root directory is missing.
    RootMissing: 3, Damage, "Root inode not allocated.", "Allocate", true;
    /// A directory that nothing leads to.
    UnconnectedDirectory: 3, Damage, "Unconnected directory inode {inode} (was in {old_dir}).", "Connect to /lost+found", true;
    /// A file without a name has one in an older copy of a block of a directory.
    OlderName: 3, Damage, "Unattached inode {inode} was '{name}' in {where}, by a copy of block {block} in the journal that is possibly older ({detail}, transaction {found}).", "Restore this name", true;
    /// lost+found is missing.
    LostFoundMissing: 3, Note, "/lost+found not found.", "Create", true;
    /// lost+found is something else than a directory.
    LostFoundNotDirectory: 3, Damage, "/lost+found is not a directory (ino={inode}).", "Unlink", true;
    /// lost+found is encrypted: names cannot be added there.
    LostFoundEncrypted: 3, Damage, "/lost+found is encrypted (ino={inode}).", "Unlink", true;
    /// lost+found holds its entries in the inode: it has no room.
    LostFoundInline: 3, Damage, "/lost+found has inline data (ino={inode}).", "Unlink", true;
    /// There is no room for what lost+found needs.
    NoRoomForLostFound: 3, Damage, "Cannot allocate space for /lost+found: {detail}.", "", true;
    /// `..` names another directory than the parent.
    DotDotWrong: 3, Damage, "'..' in {itself} is {found_dir}, should be {expected_dir}.", "Fix", true;
    /// A directory is packed again.
    DirectoryOptimized: 3, Note, "Optimizing directory {inode}.", "Optimize", true;

    // Pass 4: link counts.
    /// An empty file without a name.
    UnattachedEmpty: 4, Safe, "Unattached zero-length inode {inode}.", "Clear", true;
    /// A file without a name.
    UnattachedInode: 4, Damage, "Unattached inode {inode}.", "Connect to /lost+found", true;
    /// The link count is not the number of names.
    LinkCountWrong: 4, Safe, "Inode {inode} ref count is {found}, should be {expected}.", "Fix", true;
    /// A directory has more subdirectories than a volume without dir_nlink may have.
    ManyLinksFeatureMissing: 4, Safe, "Directory inode {inode} has more than 65000 subdirectories, but superblock is missing DIR_NLINK feature.", "Fix", true;
    /// The number of references to a value's inode is wrong.
    EaInodeRefcount: 4, Safe, "Extended attribute inode {inode} ref count is {found}, should be {expected}.", "Fix", true;
    /// A file with the flag of a value's inode, named like any other.
    EaInodeIsFile: 4, Damage, "Regular filesystem inode {inode} has EA_INODE flag set.", "Clear", true;
    /// Blocks in use that nothing claims, where the options keep such blocks.
    UnclaimedRun: 4, Safe, "{found} blocks from {block} on are in use, and nothing claims them.", "Make a file in /lost+found", true;

    // Pass 5: summaries.
    /// Clusters in use that the bitmap says are free, or the other way round.
    BlockBitmapWrong: 5, Safe, "Block bitmap differences of group {group}: {detail}.", "Fix", true;
    /// Inodes in use that the bitmap says are free, or the other way round.
    InodeBitmapWrong: 5, Safe, "Inode bitmap differences of group {group}: {detail}.", "Fix", true;
    /// The bits past the last cluster are not set.
    BlockBitmapPadding: 5, Safe, "Padding at end of block bitmap is not set (group {group}).", "Fix", true;
    /// The bits past the last inode are not set.
    InodeBitmapPadding: 5, Safe, "Padding at end of inode bitmap is not set (group {group}).", "Fix", true;
    /// A bitmap is right but for its checksum.
    BlockBitmapChecksum: 5, Safe, "Group {group} block bitmap does not match checksum.", "Fix", true;
    /// A bitmap is right but for its checksum.
    InodeBitmapChecksum: 5, Safe, "Group {group} inode bitmap does not match checksum.", "Fix", true;
    /// A group has clusters in use but says that it never had.
    BlockUninitInUse: 5, Safe, "Group {group} block(s) in use but group is marked BLOCK_UNINIT.", "Fix", true;
    /// A group has inodes in use but says that it never had.
    InodeUninitInUse: 5, Safe, "Group {group} inode(s) in use but group is marked INODE_UNINIT.", "Fix", true;
    /// A group's high-water mark lies below an inode in use, or beyond the table.
    HighWaterWrong: 5, Safe, "Group descriptor {group} has invalid unused inodes count {found}.", "Fix", true;
    /// A group's count of free clusters is wrong.
    GroupFreeBlocksWrong: 5, Safe, "Free blocks count wrong for group #{group} ({found}, counted={expected}).", "Fix", true;
    /// A group's count of free inodes is wrong.
    GroupFreeInodesWrong: 5, Safe, "Free inodes count wrong for group #{group} ({found}, counted={expected}).", "Fix", true;
    /// A group's count of directories is wrong.
    GroupDirectoriesWrong: 5, Safe, "Directories count wrong for group #{group} ({found}, counted={expected}).", "Fix", true;
    /// The superblock's free block count is not the sum of the groups'.
    FreeBlocksTotalWrong: 5, Note, "Free blocks count wrong ({found}, counted={expected}).", "Fix", true;
    /// The superblock's free inode count is not the sum of the groups'.
    FreeInodesTotalWrong: 5, Note, "Free inodes count wrong ({found}, counted={expected}).", "Fix", true;

    // Pass 6: after the passes.
    /// No block is shared any more.
    SharedBlocksDone: 6, Note, "Files share no blocks any more.", "Clear the shared_blocks feature", true;
    /// Files of 2 GiB on a volume without the feature.
    LargeFileFeatureMissing: 6, Safe, "Filesystem contains large files, but lacks LARGE_FILE flag in superblock.", "Fix", true;
    /// A quota file counts something else than what is in use.
    QuotaWrong: 6, Safe, "Quota usage of {detail} inconsistent.", "Update quota info", true;
    /// The inode of a quota file is no file, or not in use.
    QuotaInodeLost: 6, Safe, "Quota inode {inode} is missing.", "Recreate", true;
    /// A quota file is broken.
    QuotaFileCorrupt: 6, Safe, "Quota file of inode {inode} is corrupt: {detail}.", "Recreate", true;
    /// A journal is made in the place of the one that was taken off.
    JournalRecreate: 6, Safe, "The volume has lost its journal.", "Recreate journal", true;
    /// There is no room for a journal.
    JournalNoRoom: 6, Note, "Creating journal: {detail}.", "", true;
    /// The journal was made.
    JournalRegenerated: 6, Note, "*** journal has been regenerated {detail} ***", "", true;
}
