//! The options of mke2fs that describe the file system, which `mkfs` and `build` share.

use std::ffi::OsString;

/// mke2fs's options that say what the file system is like. `extant build` takes them too.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Format {
    /// Block size in bytes; -N: at least N
    #[arg(short = 'b', value_name = "BYTES", allow_hyphen_values = true)]
    block_size: Option<String>,
    /// Cluster size in bytes, with bigalloc
    #[arg(short = 'C', value_name = "BYTES")]
    cluster_size: Option<String>,
    /// Behavior of the kernel on errors: continue, remount-ro, panic
    #[arg(short = 'e', value_name = "BEHAVIOR")]
    errors: Option<String>,
    /// Extended options, separated by commas
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Blocks in a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<String>,
    /// Groups in a flex group
    #[arg(short = 'G', value_name = "GROUPS")]
    flex_bg_size: Option<String>,
    /// Bytes per inode: one inode for each BYTES of the volume
    #[arg(short = 'i', value_name = "BYTES")]
    inode_ratio: Option<String>,
    /// Inode size in bytes
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<String>,
    /// Create a journal
    #[arg(short = 'j')]
    journal: bool,
    /// Journal options: size=MiB, fast_commit_size=KiB, location=BLOCK, device=DEVICE
    #[arg(short = 'J', value_name = "OPTIONS")]
    journal_options: Vec<String>,
    /// Volume label
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,
    /// Percentage of the blocks reserved for root
    #[arg(short = 'm', value_name = "PER CENT")]
    reserved_ratio: Option<String>,
    /// Number of inodes
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<String>,
    /// Features to set, or with ^ to clear, separated by commas
    #[arg(short = 'O', value_name = "FEATURES")]
    features: Vec<String>,
    /// File system type: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// Usage types: small, floppy, news, largefile, ... separated by commas
    #[arg(short = 'T', value_name = "USAGE")]
    usage_types: Option<String>,
}

impl Format {
    /// The options as mke2fs would be given them.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let one = |letter, value: &Option<String>| {
            (letter, value.iter().map(OsString::from).collect::<Vec<_>>())
        };
        let many = |letter, values: &Vec<String>| {
            (letter, values.iter().map(OsString::from).collect::<Vec<_>>())
        };
        let options = [
            one("-b", &self.block_size),
            one("-C", &self.cluster_size),
            one("-e", &self.errors),
            many("-E", &self.extended),
            one("-g", &self.blocks_per_group),
            one("-G", &self.flex_bg_size),
            one("-i", &self.inode_ratio),
            one("-I", &self.inode_size),
            many("-J", &self.journal_options),
            ("-L", self.label.iter().cloned().collect()),
            one("-m", &self.reserved_ratio),
            one("-N", &self.inodes),
            many("-O", &self.features),
            one("-t", &self.fs_type),
            one("-T", &self.usage_types),
        ];
        for (letter, values) in options {
            for value in values {
                words.extend([letter.into(), value]);
            }
        }
        words.extend(self.journal.then(|| OsString::from("-j")));
        words
    }
}
