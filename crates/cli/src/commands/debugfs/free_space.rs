//! `freefrag` and `dump_unused`: blocks that are not in use.

use extant::debug::{DebugError, DebugVolume};
use extant::rooms::ondisk::bitmap::{BitmapKind, clear_runs};
use extant::rooms::ondisk::{BlockNo, GroupNo};

use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, number, text};

/// Classes of sizes of extents: powers of two of blocks.
const CLASSES: usize = 64;

/// Calls `take` with every free run of blocks in order; runs may follow one another.
fn free_runs(volume: &mut DebugVolume, mut take: impl FnMut(u64, u64)) -> Result<(), DebugError> {
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

pub(super) fn freefrag(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "Usage: e2freefrag [-c chunksize in kb] [-h] device_name";
    let options = Options::read(words, "c:", usage)?;
    if !options.operands.is_empty() {
        return Err(Refusal::Line(usage.to_owned()));
    }
    let image = shell.image(words)?;
    let name = image.name.display().to_string();
    let geometry = image.volume.geometry().clone();
    let size = u64::from(geometry.block_size);
    let chunk = match options.value('c') {
        Some(word) => {
            let wrong =
                || refuse(words, format_args!("{}: bad chunk size '{}'", "e2freefrag", text(word)));
            let bytes = number(word).and_then(|kib| kib.checked_mul(1024)).ok_or_else(wrong)?;
            if !bytes.is_power_of_two() || bytes < size {
                return Err(refuse(
                    words,
                    "chunk size must be a power of two and greater than or equal to the block size",
                ));
            }
            Some(bytes)
        }
        None => None,
    };
    let mut extents = Extents {
        classes: vec![(0, 0); CLASSES],
        chunk: chunk.map_or(0, |bytes| bytes / size),
        ..Extents::default()
    };
    free_runs(&mut image.volume, |start, len| extents.add(start, len))
        .map_err(|error| failed(words, error, "reading bitmaps"))?;
    extents.close();
    let free = image.volume.editor().free_blocks();
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
    shell.print(lines)
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

pub(super) fn dump_unused(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() != 1 {
        return Err(refuse(words, "Usage: dump_unused"));
    }
    let volume = shell.with_bitmaps(words)?;
    let mut runs = Vec::new();
    free_runs(volume, |start, len| runs.push((start, len)))
        .map_err(|error| failed(words, error, "reading bitmaps"))?;
    for (start, len) in runs {
        for block in start..start + len {
            let bytes = shell.volume(words)?.block(BlockNo(block));
            let bytes = bytes
                .map_err(|error| failed(words, error, format_args!("reading block {block}")))?;
            if bytes.iter().any(|byte| *byte != 0) {
                shell.print(format!("\nUnused block {block} contains non-zero data:\n\n"))?;
                shell.print(bytes)?;
            }
        }
    }
    Ok(())
}
