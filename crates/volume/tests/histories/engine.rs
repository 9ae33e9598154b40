//! The subject that is ours: a live volume.

use crate::common;
use extant_device::Device;
use extant_device::env::Env;
use extant_ondisk::InodeNo;
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::{DeviceNumber, FileType};
use extant_ondisk::time::Timestamp;
use extant_testkit::history::{
    Answer, Attributes, Call, Creator, Fallocate, FileId, Model, Moment, NodeKind, RenameHow, Step,
    Subject, XattrHow, acl_to_xattr, bytes_of,
};
use extant_testkit::{Kind, TreeSnapshot};
use extant_volume::ops::FallocateMode;
use extant_volume::{
    AclKind, Error, LiveOptions, LoadedInode, OpenOptions, RenameFlags, SetAttributes, Volume,
    XattrSet,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A live volume on which a history is replayed.
pub(crate) struct Engine {
    /// There but while it is opened again.
    volume: Option<Arc<Volume>>,
    /// What the history's root is: the volume's, or a directory of its own.
    root: InodeNo,
    device: Arc<dyn Device>,
    env: Env,
    options: LiveOptions,
    numbers: HashMap<FileId, InodeNo>,
    last_error: Option<Error>,
}

impl Engine {
    pub(crate) fn open(
        device: Arc<dyn Device>,
        env: &Env,
        options: LiveOptions,
    ) -> Result<Self, Error> {
        let volume = OpenOptions::default().open_live(device.clone(), env, &options)?;
        Ok(Self::on(Arc::new(volume), InodeNo::ROOT, device, env, options))
    }

    /// A history in a directory of a volume that others use too.
    pub(crate) fn on(
        volume: Arc<Volume>,
        root: InodeNo,
        device: Arc<dyn Device>,
        env: &Env,
        options: LiveOptions,
    ) -> Self {
        Self {
            volume: Some(volume),
            root,
            device,
            env: env.clone(),
            options,
            numbers: HashMap::new(),
            last_error: None,
        }
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("closed only to be opened again")
    }

    /// The tree that the live volume shows.
    pub(crate) fn tree(&self) -> Result<TreeSnapshot, Error> {
        Ok(common::snapshot(self.volume())?.without("lost+found"))
    }

    /// Whether a call failed because the device did, or the volume since, after the last time that this was asked.
    pub(crate) fn take_device_error(&mut self) -> bool {
        let error = self.last_error.take();
        matches!(error, Some(Error::Io(_) | Error::Journal(_) | Error::ReadOnly))
    }

    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let volume = self.volume.take().expect("closed once");
        Arc::into_inner(volume).expect("nobody else has it").close()
    }

    fn number(&self, id: FileId) -> InodeNo {
        match id {
            FileId::ROOT => self.root,
            id => *self.numbers.get(&id).unwrap_or_else(|| panic!("{id:?} was never made")),
        }
    }

    fn made(&mut self, step: &Step, made: &LoadedInode) {
        self.numbers.insert(FileId(step.number), made.number);
    }

    fn call(&mut self, step: &Step) -> Result<Answer, Error> {
        let volume = self.volume.clone().expect("closed only to be opened again");
        match &step.call {
            Call::Create { dir, name, mode, creator } => {
                let made = volume.create(self.number(*dir), name, *mode as u16, &by(creator))?;
                self.made(step, &made);
            }
            Call::MakeDir { dir, name, mode, creator } => {
                let made = volume.mkdir(self.number(*dir), name, *mode as u16, &by(creator))?;
                self.made(step, &made);
            }
            Call::MakeNode { dir, name, mode, node, creator } => {
                let (file_type, (major, minor)) = match *node {
                    NodeKind::Fifo => (FileType::Fifo, (0, 0)),
                    NodeKind::Socket => (FileType::Socket, (0, 0)),
                    NodeKind::CharDevice(major, minor) => (FileType::CharDevice, (major, minor)),
                    NodeKind::BlockDevice(major, minor) => (FileType::BlockDevice, (major, minor)),
                };
                let mode = file_type.mode() | *mode as u16;
                let device = DeviceNumber { major, minor };
                let made = volume.mknod(self.number(*dir), name, mode, device, &by(creator))?;
                self.made(step, &made);
            }
            Call::Symlink { dir, name, target, creator } => {
                let made = volume.symlink(self.number(*dir), name, target, &by(creator))?;
                self.made(step, &made);
            }
            Call::TempFile { dir, mode, creator } => {
                let made = volume.tmpfile(self.number(*dir), *mode as u16, &by(creator))?;
                self.made(step, &made);
            }
            Call::Link { file, dir, name } => {
                volume.link(self.number(*file), self.number(*dir), name)?;
            }
            Call::Rename { dir, name, to_dir, to_name, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                volume.rename(self.number(*dir), name, self.number(*to_dir), to_name, flags)?;
            }
            Call::Hold { file } => {
                volume.acquire(self.number(*file))?;
            }
            Call::Release { file } => volume.release(self.number(*file), 1)?,
            Call::SetMode { file, mode } => {
                let set = SetAttributes { mode: Some(*mode as u16), ..SetAttributes::default() };
                volume.set_attributes(self.number(*file), &set)?;
            }
            Call::SetOwner { file, uid, gid } => {
                let (uid, gid) = (Some(*uid), Some(*gid));
                let set = SetAttributes { uid, gid, ..SetAttributes::default() };
                volume.set_attributes(self.number(*file), &set)?;
            }
            Call::SetTimes { file, atime, mtime } => {
                let time =
                    |moment: &Moment| Some(Timestamp::new(moment.seconds, moment.nanoseconds));
                let (atime, mtime) = (time(atime), time(mtime));
                let set = SetAttributes { atime, mtime, ..SetAttributes::default() };
                volume.set_attributes(self.number(*file), &set)?;
            }
            Call::Unlink { dir, name } => volume.unlink(self.number(*dir), name)?,
            Call::RemoveDir { dir, name } => volume.rmdir(self.number(*dir), name)?,
            Call::Lookup { dir, name } => {
                let found = volume.lookup(self.number(*dir), name)?;
                return attributes(&volume.inode(found.inode)?);
            }
            Call::Stat { file } => return attributes(&volume.inode(self.number(*file))?),
            Call::ReadDir { dir } => {
                let mut names = Vec::new();
                for entry in volume.read_dir(self.number(*dir), 0)? {
                    names.push(entry?.name);
                }
                names.retain(|name| !matches!(&name[..], b"." | b".."));
                names.sort();
                return Ok(Answer::Names(names));
            }
            Call::ReadLink { file } => {
                let file = self.number(*file);
                return match volume.read_link(file) {
                    Ok(target) => Ok(Answer::Bytes(target)),
                    Err(Error::WrongFileType) => Err(Error::Invalid("no symbolic link")),
                    Err(error) => Err(error),
                };
            }
            Call::Read { file, offset, len } => {
                let mut bytes = vec![0; *len as usize];
                let count = volume.read(self.number(*file), *offset, &mut bytes)?;
                bytes.truncate(count);
                return Ok(Answer::Bytes(bytes));
            }
            Call::Sync => volume.sync()?,
            Call::SetXattr { file, name, seed, len, how } => {
                let how = match how {
                    XattrHow::Any => XattrSet::Any,
                    XattrHow::Create => XattrSet::Create,
                    XattrHow::Replace => XattrSet::Replace,
                };
                volume.set_xattr(self.number(*file), name, &bytes_of(*seed, *len), how)?;
            }
            Call::RemoveXattr { file, name } => volume.remove_xattr(self.number(*file), name)?,
            Call::SetAcl { file, default, acl } => {
                let kind = if *default { AclKind::Default } else { AclKind::Access };
                let acl = Acl::decode_xattr(&acl_to_xattr(acl)).expect("the lists of histories");
                volume.set_acl(self.number(*file), kind, acl.as_ref())?;
            }
            Call::Write { file, offset, len, seed } => {
                let bytes = bytes_of(*seed, *len);
                let written = volume.write(self.number(*file), *offset, &bytes)?;
                return Ok(Answer::Written(written as u64));
            }
            Call::Truncate { file, size } => volume.truncate(self.number(*file), *size)?,
            Call::Fallocate { file, how, offset, len } => {
                volume.fallocate(self.number(*file), mode_of(*how), *offset, *len)?;
            }
            Call::SeekData { file, offset } => {
                let found = volume.seek_data(self.number(*file), *offset)?;
                return Ok(found.map_or(Answer::NoOffset, Answer::Offset));
            }
            Call::SeekHole { file, offset } => {
                let found = volume.seek_hole(self.number(*file), *offset)?;
                return Ok(found.map_or(Answer::NoOffset, Answer::Offset));
            }
            Call::Fsync { file } => volume.fsync(self.number(*file))?,
            Call::Fdatasync { file } => volume.fdatasync(self.number(*file))?,
            Call::StatFs => {
                let found = volume.stat_fs()?;
                return Ok(Answer::InodesUsed(u64::from(found.inodes) - found.free_inodes));
            }
            Call::Wait { time } => self.env.advance(Duration::from_millis(*time)),
            Call::Reopen => {
                drop(volume);
                self.end()?;
                let opened = OpenOptions::default().open_live(
                    self.device.clone(),
                    &self.env,
                    &self.options,
                )?;
                self.volume = Some(Arc::new(opened));
            }
        }
        Ok(Answer::Done)
    }
}

impl Subject for Engine {
    fn now(&self) -> Moment {
        let now = self.env.now();
        Moment { seconds: now.seconds, nanoseconds: now.nanoseconds }
    }

    fn perform(&mut self, step: &Step, _: &Model) -> Result<Answer, Errno> {
        let outcome = self.call(step);
        if let Ok(Answer::NoOffset) = outcome {
            return Err(Errno::NXIO);
        }
        // Background work gets its turn at some steps and falls behind at others.
        if step.number.is_multiple_of(3) {
            self.env.step();
        }
        outcome.map_err(|error| {
            let errno = errno(&error);
            self.last_error = Some(error);
            errno
        })
    }

    fn last_error(&self) -> Option<String> {
        self.last_error.as_ref().map(ToString::to_string)
    }
}

fn by(creator: &Creator) -> extant_volume::Creator {
    extant_volume::Creator {
        uid: creator.uid,
        gid: creator.gid,
        umask: creator.umask as u16,
        is_privileged: creator.uid == 0,
    }
}

fn attributes(inode: &LoadedInode) -> Result<Answer, Error> {
    let kind = match inode.file_type() {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::CharDevice => Kind::CharDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    };
    let moment = |time: Timestamp| Moment { seconds: time.seconds, nanoseconds: time.nanoseconds };
    Ok(Answer::Attributes(Attributes {
        kind,
        mode: u32::from(inode.permissions()),
        uid: inode.uid,
        gid: inode.gid,
        size: match kind {
            Kind::File | Kind::Symlink => inode.size,
            _ => 0,
        },
        links: u64::from(inode.links),
        mtime: moment(inode.mtime),
        ctime: moment(inode.ctime),
    }))
}

fn mode_of(how: Fallocate) -> FallocateMode {
    match how {
        Fallocate::Allocate => FallocateMode::Allocate,
        Fallocate::KeepSize => FallocateMode::KeepSize,
        Fallocate::Punch => FallocateMode::PunchHole,
        Fallocate::Zero => FallocateMode::ZeroRange,
        Fallocate::ZeroKeepSize => FallocateMode::ZeroRangeKeepSize,
        Fallocate::Collapse => FallocateMode::CollapseRange,
        Fallocate::Insert => FallocateMode::InsertRange,
    }
}

/// The errno that a system call would give; what no call may end in is an errno of its own.
fn errno(error: &Error) -> Errno {
    match error {
        Error::NoSpace => Errno::NOSPC,
        Error::FileTooLarge => Errno::FBIG,
        Error::NotSupported(_) => Errno::OPNOTSUPP,
        Error::NotFound | Error::FreeInode(_) => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::TooManyLinks => Errno::MLINK,
        Error::ReadOnly => Errno::ROFS,
        Error::Invalid(_) | Error::WrongFileType => Errno::INVAL,
        Error::NotPermitted(_) => Errno::PERM,
        Error::NotADirectory => Errno::NOTDIR,
        Error::IsADirectory => Errno::ISDIR,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::NoXattr => Errno::NODATA,
        Error::Io(_) | Error::Journal(_) => Errno::IO,
        _ => Errno::UCLEAN,
    }
}
