// The table of findings. Grows with the passes; sorted by pass.
findings! {
    // Before pass 1.
    /// The superblock's free block count is not the sum of the groups'.
    FreeBlocksTotalWrong: 5, Safe, "Free blocks count wrong ({found}, counted={expected}).", "Fix", true;
    /// A group's descriptor checksum does not match.
    GroupDescChecksum: 0, Safe, "Group descriptor {group} checksum is {found}, should be {expected}.", "Fix", true;
    // Pass 1.
    /// `i_size` does not fit what is mapped.
    InodeSizeWrong: 1, Damage, "Inode {inode}, i_size is {found}, should be {expected}.", "Fix", true;
}
