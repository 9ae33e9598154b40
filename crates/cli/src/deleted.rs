//! A deleted file as a line and as JSON.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::inspect::JsonName;
use extant::rescue::{Content, DeletedFile};
use serde::Serialize;

use crate::failure::Failure;
use crate::file_type::type_name;
use crate::session::Session;
use crate::{say, time};

/// A deleted file, as `--json` shows it.
#[derive(Serialize)]
pub(crate) struct DeletedLine {
    path: Option<JsonName>,
    inode: u32,
    state: &'static str,
    /// Whether the log holds every commit since the deletion.
    is_certain: bool,
    #[serde(rename = "type")]
    file_type: Option<&'static str>,
    size: Option<u64>,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<i64>,
    deleted: Option<i64>,
    /// Ranges of bytes, from and to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<(u64, u64)>,
    /// Where it was copied to.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<JsonName>,
}

/// The name of a file: its path, or its number.
fn name(file: &DeletedFile) -> Vec<u8> {
    file.path.clone().unwrap_or_else(|| format!("<{}>", file.inode.0).into_bytes())
}

fn state(file: &DeletedFile) -> &'static str {
    match (&file.content, &file.attributes) {
        (Content::Whole, _) => "whole",
        (Content::Partly(_), _) => "partly",
        (Content::Gone, None) => "name only",
        (Content::Gone, Some(_)) => "inode only",
    }
}

/// Prints a line, and a second one where bytes are lost.
pub(crate) fn show(file: &DeletedFile, session: &mut Session) -> Result<(), Failure> {
    let size = file.attributes.as_ref().map_or("-".to_owned(), |it| it.size.to_string());
    let deleted = file.deleted.map_or("-".to_owned(), time::short);
    session.out.bytes(format!("{:<10}  {size:>12}  {deleted:<16}  ", state(file)).as_bytes())?;
    session.out.name(&name(file))?;
    session.out.bytes(b"\n")?;
    if let Content::Partly(lost) = &file.content {
        let shown: Vec<_> = lost.iter().map(|it| format!("{}-{}", it.start, it.end - 1)).collect();
        say!(session, "            lost bytes: {}", shown.join(", "))?;
    }
    Ok(())
}

impl DeletedLine {
    pub(crate) fn of(file: &DeletedFile, copy: Option<&Path>) -> Self {
        let inode = file.attributes.as_ref();
        let ranges = |lost: &Vec<Range<u64>>| lost.iter().map(|it| (it.start, it.end)).collect();
        Self {
            path: file.path.as_deref().map(JsonName::from),
            inode: file.inode.0,
            state: state(file),
            is_certain: file.is_certain,
            file_type: file.file_type().map(type_name),
            size: inode.map(|it| it.size),
            mode: inode.map(|it| it.permissions()),
            uid: inode.map(|it| it.uid),
            gid: inode.map(|it| it.gid),
            mtime: inode.map(|it| it.mtime.seconds),
            deleted: file.deleted,
            lost: match &file.content {
                Content::Partly(lost) => ranges(lost),
                _ => Vec::new(),
            },
            copy: copy.map(|path| JsonName::from(path.as_os_str().as_bytes())),
        }
    }
}
