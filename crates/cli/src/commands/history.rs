//! `extant history`: the versions of a file's inode that the log holds.

use std::ffi::OsString;

use extant::inspect::JsonName;
use extant::rescue::{InodeVersion, history};
use extant::{Follow, Reader, VolumeRead};
use serde::Serialize;

use crate::describe::permissions_text;
use crate::failure::{At as _, Failure};
use crate::image_path::ImagePath;
use crate::journal_device::refuse_other_content;
use crate::session::Session;
use crate::{say, time};

/// List the versions of a file that the journal holds
///
/// The journal's copies of the inode, the oldest first, and the one in place: size, permissions,
/// owner and times. Contents are not in the journal. A version with another generation was another
/// file's. The image is only read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// File in an image; a symbolic link is not followed
    #[arg(value_name = "IMAGE:/PATH")]
    file: OsString,
}

/// A version, as `--json` shows it.
#[derive(Serialize)]
struct Line {
    path: JsonName,
    inode: u32,
    tid: Option<u32>,
    committed: Option<i64>,
    is_present: bool,
    generation: u32,
    size: u64,
    mode: u16,
    links: u16,
    uid: u32,
    gid: u32,
    mtime: i64,
    ctime: i64,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let inside = ImagePath::parse(&self.file)?;
        inside.check_path_given()?;
        inside.check_primary_superblock()?;
        let device = inside.open()?;
        refuse_other_content(&inside.name, &*device)?;
        let reader = Reader::open(device.clone()).at(&inside.name)?;
        let path = inside.path.as_encoded_bytes();
        let found = reader.resolve(path, Follow::No).at(&self.file)?;
        let (number, generation) = (found.number, found.generation);
        let versions = history(device, number).at(&self.file)?;
        if self.json {
            let lines = versions.iter().map(|version| Line {
                path: JsonName::from(path),
                inode: number.0,
                tid: version.tid,
                committed: version.committed,
                is_present: version.is_present,
                generation: version.inode.generation,
                size: version.inode.size,
                mode: version.inode.permissions(),
                links: version.inode.links,
                uid: version.inode.uid,
                gid: version.inode.gid,
                mtime: version.inode.mtime.seconds,
                ctime: version.inode.ctime.seconds,
            });
            let lines: Vec<_> = lines.collect();
            return session.out.json_array(|element| lines.iter().try_for_each(element));
        }
        say!(
            session,
            "{:>10}  {:<16}  {:>12}  {:<9}  {:>5}  {:<11}  {:<19}",
            "tid",
            "committed",
            "size",
            "mode",
            "links",
            "uid:gid",
            "mtime"
        )?;
        versions.iter().try_for_each(|version| show(version, generation, session))
    }
}

/// Prints a version; the file has the inode with this generation.
fn show(version: &InodeVersion, generation: u32, session: &mut Session) -> Result<(), Failure> {
    let InodeVersion { inode, .. } = version;
    let remark = match version.is_present {
        true => "  in place",
        false if inode.generation != generation => "  another file's",
        false => "",
    };
    let owner = format!("{}:{}", inode.uid, inode.gid);
    say!(
        session,
        "{:>10}  {:<16}  {:>12}  {:<9}  {:>5}  {owner:<11}  {:<19}{remark}",
        version.tid.map_or("-".to_owned(), |tid| tid.to_string()),
        version.committed.map_or("-".to_owned(), time::short),
        inode.size,
        permissions_text(inode.permissions()),
        inode.links,
        time::to_second(inode.mtime.seconds),
    )
}
