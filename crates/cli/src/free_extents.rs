//! The free extents of a volume by size, as e2freefrag counts them.

use std::ffi::OsStr;

use extant::debug::{DebugError, DebugVolume};
use extant::rooms::device::c_number;
use extant::rooms::ondisk::GroupNo;
use extant::rooms::ondisk::bitmap::{BitmapKind, clear_runs};

/// Classes of sizes of extents: powers of two of blocks.
const CLASSES: usize = 64;

/// Calls `take` with every free run of blocks in order; runs may follow one another.
pub(crate) fn free_runs(
    volume: &mut DebugVolume,
    mut take: impl FnMut(u64, u64),
) -> Result<(), DebugError> {
    let geometry = volume.geometry().clone();
    let step = u64::from(geometry.blocks_per_cluster);
    for group in (0..geometry.groups_count).map(GroupNo) {
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.group_blocks(group));
        let bits = volume.bitmap(BitmapKind::Block, group)?;
        for run in clear_runs(bits, 0..geometry.group_clusters(group)) {
            let from = start + u64::from(run.start) * step;
            let to = (start + u64::from(run.end) * step).min(end);
            take(from, to - from);
        }
    }
    Ok(())
}

/// Free extents, counted by size.
#[derive(Default)]
struct Extents {
    open: Option<(u64, u64)>,
    /// Number of extents and of their blocks by class.
    classes: Vec<(u64, u64)>,
    least: Option<u64>,
    most: u64,
    count: u64,
    blocks: u64,
    /// Chunks that are wholly free, and blocks of a chunk.
    chunks: u64,
    chunk: u64,
}

impl Extents {
    fn add(&mut self, start: u64, len: u64) {
        match &mut self.open {
            Some((first, held)) if *first + *held == start => *held += len,
            _ => {
                self.close();
                self.open = Some((start, len));
            }
        }
    }

    fn close(&mut self) {
        let Some((start, len)) = self.open.take() else { return };
        let class = len.checked_ilog2().unwrap_or(0) as usize;
        let class = &mut self.classes[class];
        class.0 += 1;
        class.1 += len;
        self.least = Some(self.least.map_or(len, |least| least.min(len)));
        self.most = self.most.max(len);
        self.count += 1;
        self.blocks += len;
        if self.chunk > 0 {
            let (first, end) = (start.div_ceil(self.chunk), (start + len) / self.chunk);
            self.chunks += end.saturating_sub(first);
        }
    }
}

/// Bytes of a chunk from the argument in KiB; `None` for 0, which counts no chunks.
///
/// # Errors
/// The message of e2freefrag for another number.
pub(crate) fn chunk_size(kib: &str, block_size: u32) -> Result<Option<u64>, String> {
    let number = c_number(kib).ok_or_else(|| format!("bad chunk size '{kib}'"))?;
    if number == 0 {
        return Ok(None);
    }
    let bytes = number.checked_mul(1024).filter(|bytes| bytes.is_power_of_two());
    let bytes = bytes.ok_or("chunk size must be a power of 2.")?;
    if bytes < block_size.into() {
        let why = "chunksize must be greater than or equal to filesystem blocksize.";
        return Err(why.to_owned());
    }
    Ok(Some(bytes))
}

/// The report of e2freefrag on a volume. Free chunks of `chunk` bytes are counted too, a multiple
/// of the block size.
///
/// # Errors
/// A bitmap cannot be read.
pub(crate) fn report(
    name: &OsStr,
    volume: &mut DebugVolume,
    chunk: Option<u64>,
) -> Result<String, DebugError> {
    let name = name.display();
    let geometry = volume.geometry().clone();
    let size = u64::from(geometry.block_size);
    let mut extents = Extents {
        classes: vec![(0, 0); CLASSES],
        chunk: chunk.map_or(0, |bytes| bytes / size),
        ..Extents::default()
    };
    free_runs(volume, |start, len| extents.add(start, len))?;
    extents.close();
    let free = volume.editor().free_blocks();
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let total = geometry.blocks_count;
    let mut lines = format!(
        "Device: {name}\nBlocksize: {size} bytes\nTotal blocks: {total}\nFree blocks: {} ({:.1}%)\n",
        free,
        percent(free, total)
    );
    if let Some(bytes) = chunk {
        let per = extents.chunk;
        let chunks = (total + per) / per;
        lines += &format!(
            "\nChunksize: {bytes} bytes ({per} blocks)\nTotal chunks: {chunks}\nFree chunks: {} ({:.1}%)\n",
            extents.chunks,
            percent(extents.chunks, chunks)
        );
    }
    let kib = |blocks: u64| blocks * size / 1024;
    let average = extents.blocks.checked_div(extents.count).unwrap_or(0);
    lines += &format!(
        "\nMin. free extent: {} KB \nMax. free extent: {} KB\nAvg. free extent: {} KB\nNum. free extent: {}\n",
        kib(extents.least.unwrap_or(0)),
        kib(extents.most),
        kib(average),
        extents.count
    );
    lines += "\nHISTOGRAM OF FREE EXTENT SIZES:\n";
    lines += "Extent Size Range :  Free extents   Free Blocks  Percent\n";
    for (class, (count, blocks)) in extents.classes.iter().enumerate() {
        if *count == 0 {
            continue;
        }
        let (from, to) = (size << class, size << (class + 1));
        lines += &format!(
            "{}...{}-  :  {count:>12}  {blocks:>12}  {:>6.2}%\n",
            bound(from, from),
            bound(to, from),
            percent(*blocks, free)
        );
    }
    Ok(lines)
}

/// A size in six columns, in the unit that `like` is shown in.
fn bound(bytes: u64, like: u64) -> String {
    let (mut size, mut like, mut unit) = (bytes / 1024, like / 1024, 'K');
    for next in ['M', 'G', 'T'] {
        if like < 1024 {
            break;
        }
        (size, like, unit) = (size / 1024, like / 1024, next);
    }
    format!("{size:>5}{unit}")
}
