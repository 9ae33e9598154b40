//! Files that were found, in the format of `ls -l -i`.

use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::VolumeRead;

use crate::describe::{device_of, mode_text};
use crate::failure::Failure;
use crate::reader::{Image, Walked};
use crate::session::Session;
use crate::time;

/// A found file as `-ls` shows it: what is put in columns, and the name.
pub(super) type Row = ([String; 7], Vec<u8>);

pub(super) fn row(image: &Image, walked: &Walked) -> Row {
    let file = &walked.file;
    let size = match device_of(file) {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => file.size.to_string(),
    };
    let mut name = walked.path.clone();
    if file.file_type() == FileType::Symlink
        && let Ok(target) = image.volume.read_link(file.number)
    {
        name.extend(b" -> ");
        name.extend(target);
    }
    let cells = [
        file.number.to_string(),
        mode_text(file),
        file.links.to_string(),
        file.uid.to_string(),
        file.gid.to_string(),
        size,
        time::short(file.mtime.seconds),
    ];
    (cells, name)
}

pub(super) fn show_rows(rows: &[Row], session: &mut Session) -> Result<(), Failure> {
    let width = |column: usize| rows.iter().map(|(cells, _)| cells[column].len()).max();
    let widths: [usize; 7] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for (cells, name) in rows {
        for (cell, width) in cells.iter().zip(widths) {
            session.out.bytes(format!("{cell:>width$} ").as_bytes())?;
        }
        session.out.name(name)?;
        session.out.bytes(b"\n")?;
    }
    Ok(())
}
