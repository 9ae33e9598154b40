//! `extant stat`: everything an inode says.
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::ondisk::time::Timestamp;
use extant::rooms::reader::{Follow, LoadedInode, VolumeRead};
use serde::Serialize;

use super::Operands;
use super::setfattr::encoded;
use crate::describe::{JsonFile, device_of, mode_text};
use crate::failure::Failure;
use crate::file_type::type_name;
use crate::output::{JsonName, printable};
use crate::reader::Image;
use crate::say;
use crate::session::Session;
use crate::time;

/// Show an inode: type, mode, owner, sizes, times, flags, attributes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Follow symbolic links
    #[arg(short = 'L')]
    dereference: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// A file with all that its inode says.
#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    file: JsonFile,
    generation: u32,
    version: u64,
    extra_isize: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<u32>,
    xattr_block: u64,
    xattrs: Vec<JsonXattr>,
}

#[derive(Serialize)]
struct JsonXattr {
    name: JsonName,
    size: u64,
    /// Two digits a byte.
    value_hex: String,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let follow = if self.dereference { Follow::Yes } else { Follow::No };
        let mut found = Vec::new();
        self.operands.each(session, |image, path, session| {
            let file = image.resolve(path, follow)?;
            if self.json {
                found.push(described(image, path, &file)?);
                return Ok(());
            }
            show(image, path, &file, session)
        })?;
        if self.json {
            session.out.json_array(|element| found.iter().try_for_each(element))?;
        }
        Ok(())
    }
}

fn described(image: &Image, path: &[u8], file: &LoadedInode) -> Result<Described, Failure> {
    let xattrs = xattrs(image, path, file)?;
    let xattrs = xattrs.into_iter().map(|(name, value)| JsonXattr {
        name: name.as_slice().into(),
        size: value.len() as u64,
        value_hex: value.iter().map(|byte| format!("{byte:02x}")).collect(),
    });
    Ok(Described {
        file: JsonFile::new(image, path, file),
        generation: file.generation,
        version: file.version,
        extra_isize: file.extra_isize,
        project: file.project,
        xattr_block: file.file_acl.0,
        xattrs: xattrs.collect(),
    })
}

/// A full name, and a value.
type Name = Vec<u8>;
type Content = Vec<u8>;

/// Full names and values, as `getxattr` gives them.
fn xattrs(image: &Image, path: &[u8], file: &LoadedInode) -> Result<Vec<(Name, Content)>, Failure> {
    let failure = |error| image.failure(path, error);
    let infos = image.volume.xattrs(file.number).map_err(failure)?;
    let with_value = |name: Vec<u8>| {
        let value = image.volume.xattr(file.number, &name).map_err(failure)?;
        Ok((name, value))
    };
    infos.into_iter().map(|info| with_value(info.name)).collect()
}

fn show(
    image: &Image,
    path: &[u8],
    file: &LoadedInode,
    session: &mut Session,
) -> Result<(), Failure> {
    let mut name = printable(path);
    if file.file_type() == FileType::Symlink {
        let target = image.volume.read_link(file.number);
        let target = target.map_err(|error| image.failure(path, error))?;
        name += &format!(" -> {}", printable(&target));
    }
    let geometry = image.volume.geometry();
    let mut kind = type_name(file.file_type()).to_owned();
    if let Some((major, minor)) = device_of(file) {
        kind += &format!(" {major}, {minor}");
    }
    say!(session, "  File: {name}")?;
    say!(session, "  Size: {:<15} Space: {:<15} {kind}", file.size, file.space(geometry))?;
    say!(
        session,
        " Inode: {:<15} Links: {:<15} Generation: {}",
        file.number,
        file.links,
        file.generation
    )?;
    say!(
        session,
        "Access: ({:04o}/{})  Uid: {}  Gid: {}",
        file.permissions(),
        mode_text(file),
        file.uid,
        file.gid
    )?;
    let moment = |time: Timestamp| time::long(time.seconds, time.nanoseconds);
    say!(session, "Access: {}", moment(file.atime))?;
    say!(session, "Modify: {}", moment(file.mtime))?;
    say!(session, "Change: {}", moment(file.ctime))?;
    match file.crtime {
        Some(time) => say!(session, " Birth: {}", moment(time))?,
        None => say!(session, " Birth: -")?,
    }
    say!(session, " Flags: {} {}", file.flags.letters(), file.flags.names().join(", "))?;
    if let Some(project) = file.project.filter(|&project| project != 0) {
        say!(session, "Project: {project}")?;
    }
    for (name, value) in xattrs(image, path, file)? {
        say!(session, " Xattr: {} = {}", printable(&name), encoded(&value))?;
    }
    Ok(())
}
