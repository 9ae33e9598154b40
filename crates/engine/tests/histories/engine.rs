//! The subject that is ours: an open volume.

use crate::common;
use crate::devices::Devices;
use extant_engine::ops::FallocateMode;
use extant_engine::{DataMode, RenameFlags, SetAttributes, Volume, VolumeOptions, XattrSet};
use extant_ondisk::InodeNo;
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::{DeviceNumber, FileType, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_reader::read::mapping::MappingTarget;
use extant_reader::{AclKind, Error, Follow, LoadedInode, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::history::{
    Answer, Attributes, Call, Credentials, Fallocate, FileId, Model, Moment, NodeKind, RenameHow,
    Step, Subject, XattrHow, acl_to_xattr, bytes_of, flags, value_of,
};
use extant_testkit::{Kind, TreeSnapshot, differences};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// An open volume on which a history is replayed.
pub(crate) struct Engine {
    /// There but while it is opened again.
    volume: Option<Arc<Volume>>,
    /// The history's root directory: the volume's, or a directory of its own.
    root: InodeNo,
    devices: Devices,
    env: Env,
    options: VolumeOptions,
    numbers: HashMap<FileId, InodeNo>,
    /// Where the reading of directories has stopped.
    cookies: HashMap<FileId, u64>,
    last_error: Option<Error>,
}

impl Engine {
    pub(crate) fn open(devices: Devices, env: &Env, options: VolumeOptions) -> Result<Self, Error> {
        let options = devices.options(options);
        let volume = Volume::open(devices.volume.clone(), env, &options)?;
        Ok(Self::on(Arc::new(volume), InodeNo::ROOT, devices, env, options))
    }

    /// A history in a directory of a volume that others use too.
    pub(crate) fn on(
        volume: Arc<Volume>,
        root: InodeNo,
        devices: Devices,
        env: &Env,
        options: VolumeOptions,
    ) -> Self {
        Self {
            volume: Some(volume),
            root,
            devices,
            env: env.clone(),
            options,
            numbers: HashMap::new(),
            cookies: HashMap::new(),
            last_error: None,
        }
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("closed only to be opened again")
    }

    /// The device of the volume.
    pub(crate) fn device(&self) -> &dyn extant_device::Device {
        &*self.devices.volume
    }

    /// Whether data wait in memory for their blocks.
    pub(crate) fn delalloc(&self) -> bool {
        self.options.delalloc != Some(false) && self.options.data != Some(DataMode::Journal)
    }

    /// The tree that the open volume shows.
    pub(crate) fn tree(&self) -> Result<TreeSnapshot, Error> {
        Ok(common::snapshot(self.volume())?.without("lost+found"))
    }

    /// Whether a call failed because the device did, or the volume since, after the last time that
    /// this was asked.
    pub(crate) fn take_device_error(&mut self) -> bool {
        let error = self.last_error.take();
        matches!(error, Some(Error::Io(_) | Error::Journal(_) | Error::ReadOnly))
    }

    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let volume = self.volume.take().expect("closed once");
        Arc::into_inner(volume).expect("it is not shared").close()
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

    /// More names of a directory, from where the last call has stopped.
    fn read_on(&mut self, volume: &Volume, id: FileId, count: u64) -> Result<Answer, Error> {
        let (dir, mut cookie) = (self.number(id), self.cookies.remove(&id).unwrap_or(0));
        let mut entries = volume.read_dir(dir, cookie)?;
        let mut names = Vec::new();
        while (names.len() as u64) < count {
            let Some(entry) = entries.next() else {
                return Ok(Answer::NamesRead { names, is_end: true });
            };
            let entry = entry?;
            cookie = entry.cookie;
            if !matches!(&entry.name[..], b"." | b"..") {
                names.push(entry.name);
            }
        }
        self.cookies.insert(id, cookie);
        Ok(Answer::NamesRead { names, is_end: false })
    }

    /// Of a frozen volume a copy of the device is a clean one, with the whole tree.
    fn frozen(&self, model: &Model) -> Result<Vec<String>, Error> {
        let copy = self.devices.open()?;
        if copy.recovered().is_some() {
            return Ok(vec!["there is something to recover".into()]);
        }
        let found = common::snapshot(&copy)?.without("lost+found");
        Ok(differences(&model.snapshot(&found), &found))
    }

    fn call(&mut self, step: &Step, model: &Model) -> Result<Answer, Error> {
        let volume = self.volume.clone().expect("closed only to be opened again");
        match &step.call {
            Call::Create { dir, name, mode, credentials } => {
                let made =
                    volume.create(self.number(*dir), name, *mode as u16, &by(credentials))?;
                self.made(step, &made);
            }
            Call::MakeDir { dir, name, mode, credentials } => {
                let made = volume.mkdir(self.number(*dir), name, *mode as u16, &by(credentials))?;
                self.made(step, &made);
            }
            Call::MakeNode { dir, name, mode, node, credentials } => {
                let (file_type, (major, minor)) = match *node {
                    NodeKind::Fifo => (FileType::Fifo, (0, 0)),
                    NodeKind::Socket => (FileType::Socket, (0, 0)),
                    NodeKind::CharDevice(major, minor) => (FileType::CharDevice, (major, minor)),
                    NodeKind::BlockDevice(major, minor) => (FileType::BlockDevice, (major, minor)),
                };
                let mode = file_type.mode() | *mode as u16;
                let device = DeviceNumber { major, minor };
                let made = volume.mknod(self.number(*dir), name, mode, device, &by(credentials))?;
                self.made(step, &made);
            }
            Call::Symlink { dir, name, target, credentials } => {
                let made = volume.symlink(self.number(*dir), name, target, &by(credentials))?;
                self.made(step, &made);
            }
            Call::TempFile { dir, mode, credentials } => {
                let made = volume.tmpfile(self.number(*dir), *mode as u16, &by(credentials))?;
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
            Call::Sync => {
                volume.sync()?;
                if self.env.is_stepped() {
                    // There is no other writer.
                    assert_eq!(volume.reserved_space(), 0, "reserved after all was written");
                }
            }
            Call::SetXattr { file, name, seed, len, how } => {
                let how = match how {
                    XattrHow::Any => XattrSet::Any,
                    XattrHow::Create => XattrSet::Create,
                    XattrHow::Replace => XattrSet::Replace,
                };
                let value = value_of(name, *seed, *len);
                volume.set_xattr(self.number(*file), name, &value, how)?;
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
            Call::SetFlags { file, flags: wanted } => {
                let file = self.number(*file);
                let others = volume.inode(file)?.flags - settable();
                volume.set_flags(file, others | InodeFlags::from_bits_retain(*wanted))?;
            }
            Call::SetProject { file, project } => {
                volume.set_project(self.number(*file), *project, true)?;
            }
            Call::Flags { file } => {
                let inode = volume.inode(self.number(*file))?;
                return Ok(Answer::Flags { flags: flags_of(&inode), project: inode.project });
            }
            Call::Extents { file } => return extents(&volume, self.number(*file)),
            Call::ReadOn { dir, count } => return self.read_on(&volume, *dir, *count),
            Call::Freeze => {
                volume.freeze()?;
                let differences = self.frozen(model);
                volume.thaw()?;
                return Ok(Answer::Differences(differences?));
            }
            Call::StatFs => {
                let found = volume.stat_fs()?;
                return Ok(Answer::InodesUsed(u64::from(found.inodes) - found.free_inodes));
            }
            Call::Wait { time } => self.env.advance(Duration::from_millis(*time)),
            Call::Reopen => {
                drop(volume);
                self.end()?;
                let opened = Volume::open(self.devices.volume.clone(), &self.env, &self.options)?;
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

    fn perform(&mut self, step: &Step, model: &Model) -> Result<Answer, Errno> {
        let outcome = self.call(step, model);
        if let Ok(Answer::NoOffset) = outcome {
            return Err(Errno::NXIO);
        }
        // Background work gets its turn at some steps and lags at others.
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

/// The flags that histories set.
fn settable() -> InodeFlags {
    InodeFlags::from_bits_retain(flags::ALL)
}

/// Those of them that a file has.
fn flags_of(inode: &LoadedInode) -> u32 {
    (inode.flags & settable()).bits()
}

/// Whether the files of a tree have the flags and projects that the model says.
pub(crate) fn check_flags(
    volume: &impl VolumeRead,
    model: &Model,
    paths: &BTreeMap<Vec<u8>, FileId>,
) -> Result<(), String> {
    for (path, id) in paths {
        let expected = model.file(*id).expect("a path of the model leads to a file of it");
        let shown = path.escape_ascii();
        let found =
            volume.resolve(path, Follow::No).map_err(|error| format!("{shown}: {error}"))?;
        let (flags, project) = (flags_of(&found), found.project.unwrap_or(0));
        if (flags, project) != (expected.flags, expected.project) {
            return Err(format!(
                "{shown}: flags {flags:#x} and project {project}, not {:#x} and {}",
                expected.flags, expected.project
            ));
        }
    }
    Ok(())
}

/// The ranges of a file that have blocks; data in the inode count as such.
fn extents(volume: &Volume, file: InodeNo) -> Result<Answer, Error> {
    let inode = volume.inode(file)?;
    if inode.is_inline() {
        let data = (inode.size > 0).then_some((0..inode.size, true));
        return Ok(Answer::Extents(data.into_iter().collect()));
    }
    let size = u64::from(volume.geometry().block_size);
    let mut found = Vec::new();
    for run in volume.extents(file)? {
        let run = run?;
        if !run.is_hole() {
            let is_written = matches!(run.target, MappingTarget::Written(_));
            found.push((run.block.0 * size..run.end().0 * size, is_written));
        }
    }
    Ok(Answer::Extents(found))
}

fn by(credentials: &Credentials) -> extant_engine::Credentials {
    extant_engine::Credentials {
        uid: credentials.uid,
        gid: credentials.gid,
        umask: credentials.umask as u16,
        is_privileged: credentials.uid == 0,
        keeps_set_ids: credentials.uid == 0,
        ..extant_engine::Credentials::default()
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
        error if error.is_no_space() => Errno::NOSPC,
        Error::FileTooLarge => Errno::FBIG,
        Error::NotSupported(_) => Errno::OPNOTSUPP,
        Error::NotFound | Error::FreeInode(_) => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::TooManyLinks => Errno::MLINK,
        Error::ReadOnly => Errno::ROFS,
        Error::Invalid(_) | Error::WrongFileType => Errno::INVAL,
        Error::NotPermitted(_) | Error::LinksDirectory => Errno::PERM,
        Error::NotADirectory => Errno::NOTDIR,
        Error::IsADirectory => Errno::ISDIR,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::NoXattr => Errno::NODATA,
        Error::CrossesBoundary => Errno::XDEV,
        Error::Io(_) | Error::Journal(_) => Errno::IO,
        _ => Errno::UCLEAN,
    }
}
