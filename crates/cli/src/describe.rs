//! A file's facts as text and as JSON.

use extant::rooms::ondisk::inode::FileType;
use extant::rooms::ondisk::time::Timestamp;
use extant::rooms::reader::{LoadedInode, VolumeRead};
use serde::Serialize;

use crate::file_type::type_name;
use crate::output::JsonName;
use crate::reader::{Image, type_letter};

/// `drwxr-xr-x`.
pub(crate) fn mode_text(file: &LoadedInode) -> String {
    format!("{}{}", type_letter(file.file_type()), permissions_text(file.permissions()))
}

/// `rwxr-xr-x`.
pub(crate) fn permissions_text(bits: u16) -> String {
    let mut text = String::with_capacity(9);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let may = |bit: u16| bits >> shift & bit != 0;
        text.push(if may(4) { 'r' } else { '-' });
        text.push(if may(2) { 'w' } else { '-' });
        text.push(match (bits & special != 0, may(1)) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Numbers of a device file.
pub(crate) fn device_of(file: &LoadedInode) -> Option<(u32, u32)> {
    file.device().map(|number| (number.major, number.minor))
}

/// A moment in JSON.
#[derive(Serialize)]
pub(crate) struct JsonTime {
    seconds: i64,
    nanoseconds: u32,
}

impl From<Timestamp> for JsonTime {
    fn from(time: Timestamp) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanoseconds }
    }
}

/// A file in JSON: what `ls`, `find`, `tree` and `stat` have in common.
#[derive(Serialize)]
pub(crate) struct JsonFile {
    path: JsonName,
    inode: u32,
    #[serde(rename = "type")]
    file_type: &'static str,
    /// The permission bits, octal.
    mode: String,
    links: u16,
    uid: u32,
    gid: u32,
    size: u64,
    /// Bytes in use.
    space: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<JsonName>,
    modified: JsonTime,
    changed: JsonTime,
    accessed: JsonTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<JsonTime>,
    /// Names of inode flags, as `lsattr -l` has them.
    flags: Vec<&'static str>,
}

impl JsonFile {
    /// The facts of a file. A symlink's target that cannot be read is left out.
    pub(crate) fn new(image: &Image, path: &[u8], file: &LoadedInode) -> Self {
        let target = match file.file_type() {
            FileType::Symlink => image.volume.read_link(file.number).ok(),
            _ => None,
        };
        Self {
            path: path.into(),
            inode: file.number.0,
            file_type: type_name(file.file_type()),
            mode: format!("{:04o}", file.permissions()),
            links: file.links,
            uid: file.uid,
            gid: file.gid,
            size: file.size,
            space: file.space(image.volume.geometry()),
            device: device_of(file).map(|(major, minor)| [major, minor]),
            target: target.as_deref().map(JsonName::from),
            modified: file.mtime.into(),
            changed: file.ctime.into(),
            accessed: file.atime.into(),
            created: file.crtime.map(JsonTime::from),
            flags: file.flags.names(),
        }
    }
}
