//! `testb`, `testi`, `imap`, `ffb` and `ffi`: the bitmaps and inode tables.

use extant::InodeNo;
use extant::rooms::ondisk::BlockNo;

use super::place;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, number, text};

/// A block number and a count, as `testb`, `setb` and `freeb` take them.
pub(super) fn blocks_of(words: &[Word], usage: &str) -> Result<(u64, u64), Refusal> {
    let (block, count) = match words {
        [_, block] => (block, None),
        [_, block, count] => (block, Some(count)),
        _ => return Err(refuse(words, format_args!("Usage: {usage}"))),
    };
    let wrong = || refuse(words, format_args!("Bad block number - {}", text(block)));
    let first = number(block).ok_or_else(wrong)?;
    if first == 0 {
        return Err(refuse(words, "Invalid block number 0"));
    }
    let count = match count {
        Some(count) => {
            let wrong = || refuse(words, format_args!("Bad count - {}", text(count)));
            number(count).ok_or_else(wrong)?
        }
        None => 1,
    };
    Ok((first, count))
}

pub(super) fn testb(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    shell.with_bitmaps(words)?;
    let (first, count) = blocks_of(words, "<block> [count]")
        .map_err(|refusal| usage_of(words, refusal, "<block> [count]"))?;
    for block in first..first.saturating_add(count) {
        let name = shell.name();
        let volume = shell.volume(words)?;
        let is_inside = volume.geometry().contains(BlockNo(block), 1);
        let is_used = volume.is_block_used(BlockNo(block));
        let is_used = is_used.map_err(|error| failed(words, error, "reading bitmaps"))?;
        let state = if is_used { "marked in use" } else { "not in use" };
        if !is_inside {
            let what = format!(
                "Illegal block number passed to ext2fs_test_block_bitmap #{block} for block bitmap for {}",
                name.display()
            );
            shell.complain_and_go_on(Refusal::Line(what))?;
        }
        shell.print(format!("Block {block} {state}\n"))?;
        if !is_inside && block > first + MANY {
            return Err(refuse(words, "too many blocks past the end of the volume"));
        }
    }
    Ok(())
}

/// Blocks past the end of the volume that are still told one by one.
const MANY: u64 = 1 << 20;

/// A usage message names the request twice.
fn usage_of(words: &[Word], refusal: Refusal, usage: &str) -> Refusal {
    match (words.len(), refusal) {
        (2 | 3, refusal) => refusal,
        _ => {
            let name = text(&words[0]);
            refuse(words, format_args!("Usage: {name} {usage}"))
        }
    }
}

pub(super) fn testi(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let spec = shell.one_file(words, "testi <file>")?;
    shell.with_bitmaps(words)?;
    let inode = shell.inode_of(words, spec)?;
    let is_used = shell.volume(words)?.is_inode_used(inode);
    let is_used = is_used.map_err(|error| failed(words, error, "reading bitmaps"))?;
    let state = if is_used { "marked in use" } else { "not in use" };
    shell.print(format!("Inode {inode} is {state}\n"))
}

pub(super) fn imap(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let spec = shell.one_file(words, "imap <file>")?;
    let inode = shell.inode_of(words, spec)?;
    let volume = shell.volume(words)?;
    let geometry = volume.geometry();
    let Some((group, index)) = geometry.inode_place(inode) else {
        return Err(refuse(words, "Inode number past the end"));
    };
    let table = volume.editor().desc(group).inode_table.0;
    if table == 0 {
        return Err(refuse(words, format_args!("Inode table for group {group} is missing")));
    }
    let at = u64::from(index) * u64::from(geometry.inode_size);
    let block = table + at / u64::from(geometry.block_size);
    let offset = at % u64::from(geometry.block_size);
    shell.print(format!(
        "Inode {inode} is part of block group {group}\n\tlocated at block {block}, offset {offset:#06x}\n"
    ))
}

pub(super) fn ffb(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() > 3 {
        return Err(refuse(words, "Usage: find_free_block [count [goal]]"));
    }
    let part = |at: usize, name: &str, default: u64| match words.get(at) {
        Some(word) => {
            number(word).ok_or_else(|| refuse(words, format_args!("Bad {name} - {}", text(word))))
        }
        None => Ok(default),
    };
    shell.with_bitmaps(words)?;
    let (count, goal) = (part(1, "count", 1)?, part(2, "goal", 0)?);
    let volume = shell.volume(words)?;
    let geometry = volume.geometry().clone();
    let first = geometry.first_data_block.0;
    let total = geometry.blocks_count.saturating_sub(first);
    let goal = if goal >= first && goal < geometry.blocks_count { goal } else { first };
    let mut line = "Free blocks found: ".to_owned();
    let mut left = count;
    let step = u64::from(geometry.blocks_per_cluster);
    for at in (0..total).step_by(geometry.blocks_per_cluster as usize) {
        if left == 0 {
            break;
        }
        let block = first + (goal - first - (goal - first) % step + at) % total;
        let is_used = volume.is_block_used(BlockNo(block));
        if !is_used.map_err(|error| failed(words, error, "reading bitmaps"))? {
            line += &format!("{block} ");
            left -= 1;
        }
    }
    shell.print(line + "\n")?;
    match left {
        0 => Ok(()),
        _ => {
            let why = "Could not allocate block in ext2 filesystem";
            Err(Refusal::Line(format!("ext2fs_new_block: {why} ")))
        }
    }
}

pub(super) fn ffi(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() > 3 {
        return Err(refuse(words, "Usage: find_free_inode [dir [mode]]"));
    }
    let wrong =
        |name: &str, word: &Word| refuse(words, format_args!("Bad {name} - {}", text(word)));
    shell.with_bitmaps(words)?;
    let dir = match words.get(1) {
        Some(word) => {
            number(word).and_then(|it| u32::try_from(it).ok()).ok_or_else(|| wrong("dir", word))?
        }
        None => InodeNo::ROOT.0,
    };
    // Theirs looks elsewhere for the inode of a directory.
    if let Some(word) = words.get(2) {
        number(word).and_then(|it| u16::try_from(it).ok()).ok_or_else(|| wrong("mode", word))?;
    }
    let volume = shell.volume(words)?;
    let found = place::free_inode(volume, InodeNo(dir));
    match found.map_err(|error| failed(words, error, "reading bitmaps"))? {
        Some(number) => shell.print(format!("Free inode found: {number}\n")),
        None => {
            let why = "Could not allocate inode in ext2 filesystem";
            Err(Refusal::Line(format!("ext2fs_new_inode: {why} ")))
        }
    }
}
