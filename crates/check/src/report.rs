//! Options and results of a check.

use crate::finding::{Finding, Pass};
use crate::store::Traffic;
use extant_ondisk::dirent::FileType;
use extant_ondisk::{BlockNo, FileBlock, InodeNo};
use extant_runtime::env::Env;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How far a check is: the pass, then done and whole of it in units of the pass's own (inodes in
/// use, directory blocks, groups). Called from several threads.
pub type Progress = dyn Fn(Pass, u64, u64) + Send + Sync;

/// Called with work that was done: the pass, and the number of its units.
pub type OnWork = dyn Fn(Pass, u64) + Send + Sync;

/// Options of a check.
#[derive(Clone)]
pub struct CheckOptions {
    /// Number of threads of the scan: 0 for one per core of the machine.
    pub threads: usize,
    /// Bytes that the tables may take; `None` for as much as needed. Where all tables take more,
    /// the passes run several times, each time for some groups.
    pub memory: Option<u64>,
    /// The passes run twice, each time with the tables of half of what is in use, whatever memory
    /// there is (`-E no_inode_count_fullmap`).
    pub in_parts: bool,
    /// Rebuild all directories (`-D`).
    pub optimize_directories: bool,
    /// Rounds of repair at most; what is left then is left.
    pub rounds: u32,
    /// Blocks that may be shared on purpose (feature shared_blocks) are made the files' own
    /// (`-E unshare_blocks`).
    pub unshare_blocks: bool,
    /// Maps of indirect blocks are turned into extents (`-E bmap2extent`).
    pub bmap_to_extent: bool,
    /// Holes and unused space of directories' and inodes' are left alone: extent trees are not made
    /// shorter (`-E no_optimize_extents`).
    pub keep_extents: bool,
    /// Names of casefolded directories must be UTF-8 even where the volume is not strict about it
    /// (`-E check_encoding`).
    pub check_encoding: bool,
    /// A name whose inode is lost is kept with an empty file (`-E placeholders`).
    pub placeholders: bool,
    /// Runs of blocks that the bitmaps have in use and nothing claims become files in lost+found
    /// (`-E carve`).
    pub carve: bool,
    /// Bytes that are fetched before they are checked (`-E readahead_kb=`); 0 for none.
    pub read_ahead: u64,
    /// The report lists where files are not in one run (`-E fragcheck`).
    pub list_discontinuities: bool,
    /// Called with the progress of the check.
    pub progress: Option<Arc<Progress>>,
    /// Called for each piece of work that was done, where `progress` is: with the pass, and how
    /// many of its units the piece has (inodes in pass 1, directory blocks in pass 2, groups in
    /// the others). On a clock that is stepped this is where the work costs time.
    pub on_work: Option<Arc<OnWork>>,
    /// The clock for times and for what a repair stamps. One that is stepped wants `threads` 1.
    pub env: Env,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            memory: None,
            in_parts: false,
            optimize_directories: false,
            rounds: 8,
            unshare_blocks: false,
            bmap_to_extent: false,
            keep_extents: false,
            check_encoding: false,
            placeholders: false,
            carve: false,
            read_ahead: 4 << 20,
            list_discontinuities: false,
            progress: None,
            on_work: None,
            env: Env::threads(),
        }
    }
}

impl fmt::Debug for CheckOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("threads", &self.threads)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// A finding and what was done about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HandledFinding {
    /// The finding.
    pub finding: Finding,
    /// Whether it was repaired.
    pub repaired: bool,
}

/// The cost of one pass.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PassStatistics {
    /// The pass.
    pub pass: Pass,
    /// How long it took.
    pub time: Duration,
    /// Bytes read and written.
    pub traffic: Traffic,
}

/// A place where a file's next block is not its last one's neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Discontinuity {
    /// The file.
    pub inode: InodeNo,
    /// Its type.
    pub kind: FileType,
    /// The block after the last one.
    pub expected: BlockNo,
    /// The block that there is.
    pub found: BlockNo,
    /// The block that is not adjacent.
    pub to: DiscontinuityTarget,
}

/// The part of a file that is not adjacent to the part before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiscontinuityTarget {
    /// An extent: first logical block and number of blocks.
    Extent(FileBlock, u32),
    /// A block of an indirect map.
    Data(FileBlock),
    /// An indirect block, with the number of levels from it down.
    Indirect(u8),
}

impl fmt::Display for Discontinuity {
    /// As e2fsck shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.kind == FileType::Directory { 'd' } else { 'f' };
        let Self { inode, expected, found, .. } = self;
        write!(f, "{:6}({letter}): expecting {:6} ", inode.0, expected.0)?;
        match self.to {
            DiscontinuityTarget::Extent(at, len) => {
                write!(f, "actual extent phys {:6} log {} len {len}", found.0, at.0)
            }
            DiscontinuityTarget::Data(at) => write!(f, "got phys {:6} (blkcnt {})", found.0, at.0),
            DiscontinuityTarget::Indirect(levels) => {
                write!(f, "got phys {:6} (blkcnt -{levels})", found.0)
            }
        }
    }
}

/// Objects in use on a volume, as counted by the passes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VolumeStatistics {
    /// Inodes in use, reserved ones included.
    pub inodes: u64,
    /// Regular files, those of the file system itself left out.
    pub regular: u64,
    /// Directories.
    pub directories: u64,
    /// Character devices.
    pub char_devices: u64,
    /// Block devices.
    pub block_devices: u64,
    /// FIFOs.
    pub fifos: u64,
    /// Sockets.
    pub sockets: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Symbolic links whose target lies in the inode.
    pub fast_symlinks: u64,
    /// Names, `.` and `..` left out.
    pub links: u64,
    /// Files of 2 GiB and more.
    pub large: u64,
    /// The same of the resize inode.
    pub own_large: u64,
    /// Files of more than one run of blocks, the list of bad blocks left out.
    pub fragmented: u64,
    /// Directories of more than one run of blocks, which are files here, too.
    pub fragmented_directories: u64,
    /// Blocks in the list of bad blocks.
    pub bad_blocks: u64,
    /// Clusters in use, in blocks.
    pub blocks: u64,
    /// Inodes whose map has single, double and triple indirect blocks, the journal and the list of
    /// bad blocks left out.
    pub indirect: [u64; 3],
    /// Number of inodes by the number of levels of their extent tree below the root.
    pub extent_depth: [u64; 6],
}

impl VolumeStatistics {
    pub(crate) fn add(&mut self, more: &Self) {
        self.combine(more, u64::saturating_add);
    }

    pub(crate) fn subtract(&mut self, less: &Self) {
        self.combine(less, u64::saturating_sub);
    }

    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let pairs = [
            (&mut self.inodes, other.inodes),
            (&mut self.regular, other.regular),
            (&mut self.directories, other.directories),
            (&mut self.char_devices, other.char_devices),
            (&mut self.block_devices, other.block_devices),
            (&mut self.fifos, other.fifos),
            (&mut self.sockets, other.sockets),
            (&mut self.symlinks, other.symlinks),
            (&mut self.fast_symlinks, other.fast_symlinks),
            (&mut self.links, other.links),
            (&mut self.large, other.large),
            (&mut self.own_large, other.own_large),
            (&mut self.fragmented, other.fragmented),
            (&mut self.fragmented_directories, other.fragmented_directories),
            (&mut self.bad_blocks, other.bad_blocks),
            (&mut self.blocks, other.blocks),
        ];
        let indirect = self.indirect.iter_mut().zip(other.indirect);
        let extent_depth = self.extent_depth.iter_mut().zip(other.extent_depth);
        for (count, other) in pairs.into_iter().chain(indirect).chain(extent_depth) {
            *count = with(*count, other);
        }
    }
}

/// Objects that a repair made or took away after they were counted.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    pub(crate) made: VolumeStatistics,
    pub(crate) removed: VolumeStatistics,
    /// A map of indirect blocks was written again: its shape is not counted here.
    pub(crate) is_unsure: bool,
}

impl Recount {
    /// The counts as they are after the repairs.
    pub(crate) fn applied_to(&self, mut statistics: VolumeStatistics) -> VolumeStatistics {
        statistics.add(&self.made);
        statistics.subtract(&self.removed);
        statistics
    }
}

/// Results of the passes.
#[derive(Clone, Debug, Default)]
pub struct PassReport {
    /// The findings: of a scan ordered by pass and location, of a repair in the order of the
    /// repairs.
    pub findings: Vec<HandledFinding>,
    /// Time and traffic of the last round, by pass.
    pub passes: Vec<PassStatistics>,
    /// Objects in use.
    pub statistics: VolumeStatistics,
    /// Discontinuities by inode: empty unless [`CheckOptions::list_discontinuities`].
    pub discontinuities: Vec<Discontinuity>,
    /// Bytes that the tables took at most.
    pub memory: u64,
    /// How often the passes went over the disk, each time for other groups: once, unless
    /// [`CheckOptions::memory`] is less than the tables of all groups take.
    pub windows: usize,
    /// How often the passes ran to repair, with those that were begun again: 0 where nothing was to
    /// be repaired.
    pub rounds: u32,
    /// Whether the first scan found an error: if it did not, a repair does only work that the
    /// options ask for.
    pub found_errors: bool,
    /// Groups whose high-water mark could be lower, with the inodes up to the last one in use.
    pub(crate) reducible_marks: Vec<(extant_ondisk::GroupNo, u32)>,
    /// Clusters that a check without repairs found claimed more than once.
    pub(crate) claimed_twice: roaring::RoaringTreemap,
    /// Clusters that it found in use by the bitmaps and claimed by nothing.
    pub(crate) unclaimed: roaring::RoaringTreemap,
    /// Whether anything was written.
    pub changed: bool,
    /// Whether something is left that is worse than a note.
    pub errors_left: bool,
}

impl PassReport {
    /// The report of a window, with what windows before it counted.
    pub(crate) fn after(mut self, before: Self) -> Self {
        for figures in &before.passes {
            match self.passes.iter_mut().find(|it| it.pass == figures.pass) {
                Some(sum) => {
                    sum.time += figures.time;
                    sum.traffic.read += figures.traffic.read;
                    sum.traffic.written += figures.traffic.written;
                }
                None => self.passes.push(*figures),
            }
        }
        self.memory = self.memory.max(before.memory);
        let mut marks = before.reducible_marks;
        marks.append(&mut self.reducible_marks);
        self.reducible_marks = marks;
        self
    }
}
