//! `freefrag` and `dump_unused`: blocks that are not in use.

use extant::rooms::ondisk::BlockNo;

use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, text};
use crate::free_extents::{self, free_runs};

pub(super) fn freefrag(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "Usage: e2freefrag [-c chunksize in kb] [-h] device_name";
    let options = Options::read(words, "c:", usage)?;
    if !options.operands.is_empty() {
        return Err(Refusal::Line(usage.to_owned()));
    }
    let image = shell.image(words)?;
    let block_size = image.volume.geometry().block_size;
    let chunk = options.value('c').map(|word| free_extents::chunk_size(&text(word), block_size));
    let chunk = chunk.transpose().map_err(|why| refuse(words, why))?.flatten();
    let name = image.name.clone();
    let lines = free_extents::report(&name, &mut image.volume, chunk)
        .map_err(|error| failed(words, error, "reading bitmaps"))?;
    shell.print(lines)
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
