//! `cd`, `pwd`, `chroot`, `lcd`, `open`, `close`, `quit`: where we are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use extant::InodeNo;

use super::host::host_error;
use super::image::{NotOpened, OpenImage, OpenRequest};
use super::options::Options;
use super::shell::{Done, Refusal, Shell, at_file, failed, refuse};
use super::words::{Word, number, text};
use crate::err_line;

pub(super) fn pwd(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let image = shell.image(words)?;
    let mut lines = Vec::new();
    for (name, inode) in [("[pwd]", image.cwd), ("[root]", image.root)] {
        lines.extend(format!("{name:<6}  INODE: {inode:>6}  PATH: ").into_bytes());
        lines.extend(image.volume.path_of(inode));
        lines.push(b'\n');
    }
    shell.print(lines)
}

/// The directory that the only word names.
fn directory(shell: &mut Shell<'_>, words: &[Word], usage: &str) -> Result<InodeNo, Refusal> {
    let spec = shell.one_file(words, usage)?;
    let number = shell.inode_of(words, spec)?;
    let record = shell.record(words, number)?;
    match record.is_dir() {
        true => Ok(number),
        false => Err(at_file(spec, extant::debug::DebugError::NotADirectory)),
    }
}

pub(super) fn cd(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let number = directory(shell, words, "cd <file>")?;
    shell.image(words)?.cwd = number;
    Ok(())
}

pub(super) fn chroot(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let number = directory(shell, words, "chroot <file>")?;
    shell.image(words)?.root = number;
    Ok(())
}

pub(super) fn lcd(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, path] = words else {
        return Err(refuse(words, "Usage: lcd <native dir>"));
    };
    let _ = &shell;
    std::env::set_current_dir(OsStr::from_bytes(path)).map_err(|error| {
        let doing = format!("trying to change native directory to {}", text(path));
        failed(words, host_error(&error), doing)
    })
}

pub(super) fn open(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "open: Usage: open [-s superblock] [-b blocksize] [-d image_filename] [-c] [-i] \
                 [-f] [-e] [-D] [-w] <device>";
    let options = Options::read(words, "iwfecb:s:d:Dz:", usage)?;
    let [name] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    for letter in ['i', 'd'] {
        if options.has(letter) {
            let why = "is not supported by extant: files made by e2image";
            return Err(refuse(words, format_args!("-{letter} {why}")));
        }
    }
    shell.none_is_open(words)?;
    let block_size = options
        .value('b')
        .map(|word| {
            let wrong = || refuse(words, format_args!("Bad block size - {}", text(word)));
            number(word).and_then(|size| u32::try_from(size).ok()).ok_or_else(wrong)
        })
        .transpose()?;
    let superblock = options
        .value('s')
        .map(|word| {
            let wrong =
                || refuse(words, format_args!("Bad superblock block number - {}", text(word)));
            number(word).ok_or_else(wrong)
        })
        .transpose()?;
    let request = OpenRequest {
        is_writable: options.has('w'),
        is_catastrophic: options.has('c'),
        forces: options.has('f'),
        is_direct: options.has('D'),
        block_size,
        superblock,
        undo: options.value('z').map(|path| OsStr::from_bytes(path).to_owned()),
        is_compat: shell.session.is_compat,
        ..OpenRequest::default()
    };
    open_image(shell, OsStr::from_bytes(name), &request)
}

/// Opens a volume, and prints what is wrong with its superblock.
pub(super) fn open_image(shell: &mut Shell<'_>, name: &OsStr, request: &OpenRequest) -> Done {
    let shown = name.display();
    match OpenImage::open(name, request) {
        Ok((image, notes)) => {
            if let Some(announcement) = notes.announcement {
                shell.print(format!("{announcement}\n"))?;
            }
            if notes.is_damaged {
                shell.print("Checksum errors in superblock!  Retrying...\n")?;
            }
            if let Some(warning) = notes.warning {
                shell.session.out.flush()?;
                err_line!("debugfs: {shown}: warning: {warning}");
            }
            shell.image = Some(image);
            Ok(())
        }
        Err(NotOpened::Trying(why)) => {
            Err(Refusal::Line(format!("debugfs: {why} while trying to open {shown}")))
        }
        Err(NotOpened::Line(line)) => Err(Refusal::Line(line)),
    }
}

pub(super) fn close(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "close: Usage: close [-a]";
    let options = Options::read(words, "a", usage)?;
    if !options.operands.is_empty() {
        return Err(Refusal::Line(usage.to_owned()));
    }
    shell.image(words)?;
    match shell.image.take() {
        Some(image) => image.close().map_err(|failure| refuse(words, failure)),
        None => Ok(()),
    }
}

pub(super) fn quit(shell: &mut Shell<'_>, _: &[Word]) -> Done {
    shell.has_quit = true;
    Ok(())
}
