//! Every error of the library has a number and a kind, also as [`extant::Error`].

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use extant::rooms::check::CheckError;
use extant::rooms::check::pass0::OpenError as CheckOpenError;
use extant::rooms::check::run::RunFailure;
use extant::rooms::device::undo::UndoError;
use extant::rooms::device::{Operation, SliceError};
use extant::rooms::image::build::Limit;
use extant::rooms::image::mkfs::config::Profile;
use extant::rooms::image::mkfs::{
    Conflict, JournalDeviceError, Shortage, SizeError, UsageError, ValueError,
};
use extant::rooms::image::tune::{ChangeError, RequestError, Unsupported, Work};
use extant::rooms::journal::JournalError;
use extant::rooms::layout::tables::NoRoom;
use extant::rooms::mount::{OptionError, sandbox::SandboxError};
use extant::rooms::nbd::NbdError;
use extant::rooms::offline::OfflineError;
use extant::rooms::ondisk::{Flaw, FormatError, GroupNo, IncompatFeatures, Location};
use extant::rooms::storage::crypt::CryptError;
use extant::rooms::storage::lvm::LvmError;
use extant::rooms::storage::partition::PartitionError;
use extant::rooms::storage::{KeyError, OverlayError, VmImageError};
use extant::source::{EntryName, SourceError};
use extant::{
    BuildError, Cause, DeviceError, ExportError, FileError, FinishError, ImageError, MkfsError,
    MountError, MounterError, OpenError, ResizeError, RunError, TuneError, UrlError, inspect,
};

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const EUCLEAN: i32 = 117;
const ECANCELED: i32 = 125;
const ENOKEY: i32 = 126;
const EKEYREJECTED: i32 = 129;

fn path() -> PathBuf {
    PathBuf::from("disk.img")
}

fn denied() -> io::Error {
    io::Error::from_raw_os_error(EACCES)
}

fn format() -> FormatError {
    Flaw::Rule("a rule").at(Location::Volume)
}

fn device() -> DeviceError {
    DeviceError::io(Operation::Read, 0, 512, denied())
}

fn slice() -> SliceError {
    SliceError { start: 0, size: 2, whole: 1 }
}

fn text() -> String {
    "text".to_owned()
}

/// Asserts the number and the kind of a value of each variant. A variant that is missing does not
/// compile.
macro_rules! every_variant {
    ($error:ty { $($pattern:pat => $value:expr, $errno:expr, $kind:ident;)* }) => {
        let _ = |error: &$error| match error { $($pattern => (),)* };
        for (error, errno, kind) in [$(($value, $errno, ErrorKind::$kind)),*] {
            assert_eq!((error.errno(), error.kind()), (errno, kind), "{error:?}");
        }
    };
}

/// The same, and that `extant::Error` says the same of it.
macro_rules! every_variant_as_one_error {
    ($error:ty { $($pattern:pat => $value:expr, $errno:expr, $kind:ident;)* }) => {
        every_variant! { $error { $($pattern => $value, $errno, $kind;)* } }
        for (error, errno, kind) in [$(($value, $errno, ErrorKind::$kind)),*] {
            let text = error.to_string();
            let error = extant::Error::from(error);
            assert_eq!((error.errno(), error.kind()), (errno, kind), "{error:?}");
            assert_eq!(error.to_string(), text);
            let system = io::Error::from(error);
            assert_eq!((system.kind(), system.to_string()), (kind, text));
        }
    };
}

#[test]
fn errors_of_names_and_devices() {
    every_variant_as_one_error! { UrlError {
        UrlError::UnknownScheme { .. } => UrlError::UnknownScheme { scheme: text() }, EINVAL, InvalidInput;
        UrlError::Malformed { .. } => UrlError::Malformed { text: text().into(), problem: text() }, EINVAL, InvalidInput;
        UrlError::Ambiguous { .. } => UrlError::Ambiguous { text: text().into(), one: path(), other: path() }, EINVAL, InvalidInput;
        UrlError::NoSuchTag { .. } => UrlError::NoSuchTag { text: text().into() }, ENOENT, NotFound;
        UrlError::NoImage { .. } => UrlError::NoImage { text: text().into(), image: path() }, ENOENT, NotFound;
        UrlError::Overlap { .. } => UrlError::Overlap { one: path(), other: path() }, EINVAL, InvalidInput;
        UrlError::File(_) => UrlError::File(FileError::Open { path: path(), source: denied() }), EACCES, PermissionDenied;
        UrlError::Partition { .. } => UrlError::Partition { path: path(), error: PartitionError::NoTable }, ENOENT, NotFound;
        UrlError::Key(_) => UrlError::Key(KeyError::NoTerminal), ENOKEY, PermissionDenied;
        UrlError::Crypt { .. } => UrlError::Crypt { path: path(), error: CryptError::WrongKey }, EKEYREJECTED, PermissionDenied;
        UrlError::Lvm { .. } => UrlError::Lvm { path: path(), error: LvmError::NoLabel }, EINVAL, InvalidInput;
        UrlError::Overlay { .. } => UrlError::Overlay { path: path(), error: OverlayError::IsBase }, EINVAL, InvalidInput;
        UrlError::VmImage { .. } => UrlError::VmImage { path: path(), error: VmImageError::OtherFormat { format: "qcow2" } }, EINVAL, InvalidInput;
        UrlError::Nbd { .. } => UrlError::Nbd { path: path(), error: NbdError::Tls }, EOPNOTSUPP, Unsupported;
        UrlError::LeftOut { .. } => UrlError::LeftOut { scheme: "s:", feature: "s" }, EOPNOTSUPP, Unsupported;
        UrlError::Backend(_) => UrlError::Backend(Box::new(denied())), EACCES, PermissionDenied;
        UrlError::Finish(_) => UrlError::Finish(FinishError::Flush(device())), EACCES, PermissionDenied;
        UrlError::Superblock { .. } => UrlError::Superblock { path: path(), block: 32768 }, EINVAL, InvalidInput;
        UrlError::Slice { .. } => UrlError::Slice { path: path(), error: slice() }, EINVAL, InvalidInput;
    } }
    every_variant_as_one_error! { FinishError {
        FinishError::Flush(_) => FinishError::Flush(device()), EACCES, PermissionDenied;
        FinishError::Lost(_) => FinishError::Lost(device()), EACCES, PermissionDenied;
    } }
    every_variant_as_one_error! { FileError {
        FileError::Open { .. } => FileError::Open { path: path(), source: denied() }, EACCES, PermissionDenied;
        FileError::NotADevice { .. } => FileError::NotADevice { path: path() }, EINVAL, InvalidInput;
        FileError::ReadOnly { .. } => FileError::ReadOnly { path: path() }, EROFS, ReadOnlyFilesystem;
        FileError::InUse { .. } => FileError::InUse { path: path(), mounted: false, holder: None }, EBUSY, ResourceBusy;
        FileError::BacksLoopDevice { .. } => FileError::BacksLoopDevice { path: path(), loop_device: path(), mount: None }, EBUSY, ResourceBusy;
        FileError::NoDirect { .. } => FileError::NoDirect { path: path() }, EINVAL, InvalidInput;
        FileError::FixedSize { .. } => FileError::FixedSize { path: path() }, EINVAL, InvalidInput;
    } }
    let number = |error: PartitionError| error.errno();
    assert_eq!(number(PartitionError::OutOfDevice { number: 1, error: slice() }), EUCLEAN);
    let number = |error: LvmError| error.errno();
    let missing = LvmError::MissingDevice { volume: text(), id: text(), hint: text() };
    assert_eq!(number(missing), ENODEV);
    let number = |error: OverlayError| error.errno();
    assert_eq!(number(OverlayError::BaseChanged { difference: "its size" }), EUCLEAN);
    assert_eq!(number(OverlayError::CommitInterrupted), EBUSY);
    assert_eq!(number(OverlayError::ExternalJournal), EOPNOTSUPP);
    let number = |error: NbdError| error.errno();
    assert_eq!(number(NbdError::ReadOnly), EROFS);
    assert_eq!(number(NbdError::NoExport { name: text(), message: text() }), ENOENT);
    assert_eq!(number(NbdError::Io(denied())), EACCES);
    let number = |error: VmImageError| error.errno();
    assert_eq!(number(VmImageError::ReadOnly { scheme: "qcow2:" }), EROFS);
    assert_eq!(number(VmImageError::LongChain { limit: 64 }), EUCLEAN);
    assert_eq!(number(VmImageError::NeedsFile { what: "a", name: text(), option: "b" }), EPERM);
}

#[test]
fn errors_of_new_file_systems() {
    let config = || Profile::parse("[").unwrap_err();
    every_variant_as_one_error! { MkfsError {
        MkfsError::Usage(_) => MkfsError::Usage(UsageError::NoDevice), EINVAL, InvalidInput;
        MkfsError::Place(_) => MkfsError::Place(UrlError::LeftOut { scheme: "s:", feature: "s" }), EOPNOTSUPP, Unsupported;
        MkfsError::Value(_) => MkfsError::Value(ValueError::RevisionZero), EINVAL, InvalidInput;
        MkfsError::Conflict(_) => MkfsError::Conflict(Conflict::ClusterBelowBlock), EINVAL, InvalidInput;
        MkfsError::Size(_) => MkfsError::Size(SizeError::BeyondDevice { end: 2, size: 1 }), ENOSPC, StorageFull;
        MkfsError::SourceDirectory => MkfsError::SourceDirectory, EOPNOTSUPP, Unsupported;
        MkfsError::NotOnOpenDevice => MkfsError::NotOnOpenDevice, EOPNOTSUPP, Unsupported;
        MkfsError::JournalDevice { .. } => MkfsError::JournalDevice { path: path(), problem: JournalDeviceError::Log(format()) }, EUCLEAN, InvalidData;
        MkfsError::Format(_) => MkfsError::Format(FormatError::Unsupported(IncompatFeatures::COMPRESSION)), EOPNOTSUPP, Unsupported;
        MkfsError::BadExtended { .. } => MkfsError::BadExtended { option: text(), why: "wrong" }, EINVAL, InvalidInput;
        MkfsError::BadJournal { .. } => MkfsError::BadJournal { option: text(), why: "wrong" }, EINVAL, InvalidInput;
        MkfsError::BadFeatures(_) => MkfsError::BadFeatures(text()), EINVAL, InvalidInput;
        MkfsError::Config { .. } => MkfsError::Config { path: path(), flaw: config() }, EINVAL, InvalidInput;
        MkfsError::UnknownType(_) => MkfsError::UnknownType(text()), EINVAL, InvalidInput;
        MkfsError::Occupied { .. } => MkfsError::Occupied { path: path(), found: text() }, EEXIST, AlreadyExists;
        MkfsError::OnlySuperblocks { .. } => MkfsError::OnlySuperblocks { path: path() }, EEXIST, AlreadyExists;
        MkfsError::TooSmall(_) => MkfsError::TooSmall(Shortage::Inode), ENOSPC, StorageFull;
        MkfsError::TooManyInodes => MkfsError::TooManyInodes, ENOSPC, StorageFull;
        MkfsError::Device(_) => MkfsError::Device(device()), EACCES, PermissionDenied;
        MkfsError::Undo(_) => MkfsError::Undo(UndoError::Broken { path: path(), at: 0 }), EUCLEAN, InvalidData;
        MkfsError::Open(_) => MkfsError::Open(FileError::NotADevice { path: path() }), EINVAL, InvalidInput;
        MkfsError::Io { .. } => MkfsError::Io { path: path(), source: denied() }, EACCES, PermissionDenied;
    } }
}

#[test]
fn errors_of_changes_in_place() {
    every_variant_as_one_error! { ResizeError {
        ResizeError::NeedsCheck => ResizeError::NeedsCheck, EUCLEAN, InvalidData;
        ResizeError::TooLarge { .. } => ResizeError::TooLarge { blocks: 2, most: 1 }, EFBIG, FileTooLarge;
        ResizeError::TooSmall { .. } => ResizeError::TooSmall { blocks: 1, least: 2 }, ENOSPC, StorageFull;
        ResizeError::DeviceTooShort { .. } => ResizeError::DeviceTooShort { blocks: 2, held: 1 }, ENOSPC, StorageFull;
        ResizeError::Barred(_) => ResizeError::Barred("a feature"), EOPNOTSUPP, Unsupported;
        ResizeError::NoExtents => ResizeError::NoExtents, EOPNOTSUPP, Unsupported;
        ResizeError::ExternalJournal => ResizeError::ExternalJournal, EOPNOTSUPP, Unsupported;
        ResizeError::GroupTooLarge(_) => ResizeError::GroupTooLarge(1 << 16), EOPNOTSUPP, Unsupported;
        ResizeError::NoRoomToMove => ResizeError::NoRoomToMove, ENOSPC, StorageFull;
        ResizeError::NoJournal => ResizeError::NoJournal, EOPNOTSUPP, Unsupported;
        ResizeError::JournalElsewhere => ResizeError::JournalElsewhere, EOPNOTSUPP, Unsupported;
        ResizeError::NoJournalSize => ResizeError::NoJournalSize, EINVAL, InvalidInput;
        ResizeError::JournalSize(_) => ResizeError::JournalSize(MkfsError::TooManyInodes), EINVAL, InvalidInput;
        ResizeError::JournalDevice(_) => ResizeError::JournalDevice(FileError::Open { path: path(), source: denied() }), EACCES, PermissionDenied;
        ResizeError::InUse { .. } => ResizeError::InUse { node: text() }, EBUSY, ResourceBusy;
        ResizeError::NoRoom(_) => ResizeError::NoRoom(NoRoom(GroupNo(1))), ENOSPC, StorageFull;
        ResizeError::Journal(_) => ResizeError::Journal(JournalError::NoJournal), ENOENT, NotFound;
        ResizeError::Volume(_) => ResizeError::Volume(OfflineError::Device(device())), EACCES, PermissionDenied;
        ResizeError::Broken(_) => ResizeError::Broken(format()), EUCLEAN, InvalidData;
        ResizeError::Device(_) => ResizeError::Device(device()), EACCES, PermissionDenied;
    } }
    every_variant_as_one_error! { TuneError {
        TuneError::Request(_) => TuneError::Request(RequestError::ClearAll), EINVAL, InvalidInput;
        TuneError::Change(_) => TuneError::Change(ChangeError::HasJournal), EEXIST, AlreadyExists;
        TuneError::Directory(_) => TuneError::Directory(too_many_names()), ENOSPC, StorageFull;
        TuneError::Unsupported(_) => TuneError::Unsupported(Unsupported::InodeSize), EOPNOTSUPP, Unsupported;
        TuneError::NeedsCheck(_) => TuneError::NeedsCheck(Work::AddQuota), EUCLEAN, InvalidData;
        TuneError::InUse { .. } => TuneError::InUse { node: text() }, EBUSY, ResourceBusy;
        TuneError::Value(_) => TuneError::Value(MkfsError::TooManyInodes), ENOSPC, StorageFull;
        TuneError::Journal(_) => TuneError::Journal(JournalError::NoJournal), ENOENT, NotFound;
        TuneError::Volume(_) => TuneError::Volume(OfflineError::Device(device())), EACCES, PermissionDenied;
        TuneError::Broken(_) => TuneError::Broken(format()), EUCLEAN, InvalidData;
        TuneError::Device(_) => TuneError::Device(device()), EACCES, PermissionDenied;
    } }
}

fn too_many_names() -> extant::rooms::layout::pack::TooManyNames {
    extant::rooms::layout::pack::TooManyNames { leaves: 2, limit: 1 }
}

#[test]
fn errors_of_built_images() {
    let name = || EntryName(b"file".to_vec());
    every_variant_as_one_error! { SourceError {
        SourceError::Archive { .. } => SourceError::Archive { archive: text(), entry: None, position: 0, flaw: extant::source::Flaw::NoName }, EINVAL, InvalidInput;
        SourceError::Path { .. } => SourceError::Path { path: name(), flaw: extant::source::Flaw::Read(denied()) }, EACCES, PermissionDenied;
        SourceError::Io { .. } => SourceError::Io { path: name(), action: "read", source: denied() }, EACCES, PermissionDenied;
        SourceError::Oci { .. } => SourceError::Oci { layout: name(), problem: text() }, EINVAL, InvalidInput;
        SourceError::Line { .. } => SourceError::Line { path: name(), line: 1, problem: text() }, EINVAL, InvalidInput;
        SourceError::Platform(_) => SourceError::Platform(text()), EINVAL, InvalidInput;
        SourceError::Owner(_) => SourceError::Owner(text()), EINVAL, InvalidInput;
        SourceError::OwnerMap(_) => SourceError::OwnerMap(text()), EINVAL, InvalidInput;
        SourceError::OwnerRanges(_) => SourceError::OwnerRanges(text()), EINVAL, InvalidInput;
    } }
    every_variant_as_one_error! { BuildError {
        BuildError::Source(_) => BuildError::Source(SourceError::Owner(text())), EINVAL, InvalidInput;
        BuildError::Mkfs(_) => BuildError::Mkfs(MkfsError::TooManyInodes), ENOSPC, StorageFull;
        BuildError::Place(_) => BuildError::Place(UrlError::LeftOut { scheme: "s:", feature: "s" }), EOPNOTSUPP, Unsupported;
        BuildError::Limit { .. } => BuildError::Limit { path: name(), limit: Limit::HugeFile }, EFBIG, FileTooLarge;
        BuildError::XattrRoom { .. } => BuildError::XattrRoom { path: name(), name: text(), needed: 1, has_ea_inodes: true }, ENOSPC, StorageFull;
        BuildError::XattrName { .. } => BuildError::XattrName { path: name(), name: name() }, EINVAL, InvalidInput;
        BuildError::Acl { .. } => BuildError::Acl { path: name(), source: format() }, EINVAL, InvalidInput;
        BuildError::Format(_) => BuildError::Format(format()), EUCLEAN, InvalidData;
        BuildError::TooManyFiles { .. } => BuildError::TooManyFiles { count: 2, most: 1 }, ENOSPC, StorageFull;
        BuildError::LargerThanDevice { .. } => BuildError::LargerThanDevice { path: path(), wanted: 2, room: 1 }, ENOSPC, StorageFull;
        BuildError::NoSpace { .. } => BuildError::NoSpace { needed: 2, room: 1, block_size: 4096 }, ENOSPC, StorageFull;
        BuildError::Missing { .. } => BuildError::Missing { missing: 2, room: 1, block_size: 4096 }, ENOSPC, StorageFull;
        BuildError::NoInodes { .. } => BuildError::NoInodes { needed: 2, given: 1 }, ENOSPC, StorageFull;
        BuildError::Unsupported(_) => BuildError::Unsupported("this"), EOPNOTSUPP, Unsupported;
        BuildError::NoFittingSize => BuildError::NoFittingSize, ENOSPC, StorageFull;
        BuildError::Output(_) => BuildError::Output(FileError::NotADevice { path: path() }), EINVAL, InvalidInput;
        BuildError::Write { .. } => BuildError::Write { path: path(), source: device() }, EACCES, PermissionDenied;
        BuildError::Io { .. } => BuildError::Io { path: path(), action: "read", source: denied() }, EACCES, PermissionDenied;
    } }
    every_variant_as_one_error! { ImageError {
        ImageError::Source(_) => ImageError::Source(SourceError::Owner(text())), EINVAL, InvalidInput;
        ImageError::Build(_) => ImageError::Build(BuildError::NoFittingSize), ENOSPC, StorageFull;
    } }
    every_variant_as_one_error! { ExportError {
        ExportError::Path(_) => ExportError::Path(missing()), ENOENT, NotFound;
        ExportError::Output(_) => ExportError::Output(denied()), EACCES, PermissionDenied;
    } }
}

/// The error of a path that is not there.
fn missing() -> extant::PathError {
    let device = std::sync::Arc::new(extant::MemoryDevice::new(8 << 20));
    extant::Formatter::new().format(&*device).expect("it is made");
    let fs = extant::FileSystem::on_device(device).expect("it is opened");
    fs.read("/missing").expect_err("it is not there")
}

#[test]
fn errors_of_checks() {
    every_variant! { CheckError {
        CheckError::Device(_) => CheckError::Device(device()), EACCES, PermissionDenied;
        CheckError::Format(_) => CheckError::Format(format()), EUCLEAN, InvalidData;
        CheckError::Volume(_) => CheckError::Volume(OfflineError::Format(format())), EUCLEAN, InvalidData;
        CheckError::Stopped => CheckError::Stopped, ECANCELED, Other;
        CheckError::Memory { .. } => CheckError::Memory { limit: 1 }, ENOMEM, OutOfMemory;
    } }
    every_variant! { CheckOpenError {
        CheckOpenError::Check(_) => CheckOpenError::Check(CheckError::Stopped), ECANCELED, Other;
        CheckOpenError::NoSuperblock(_) => CheckOpenError::NoSuperblock(format()), EUCLEAN, InvalidData;
        CheckOpenError::Unsupported(_) => CheckOpenError::Unsupported(vec![text()]), EOPNOTSUPP, Unsupported;
        CheckOpenError::DeviceTooSmall { .. } => CheckOpenError::DeviceTooSmall { blocks: 2, device: 1 }, EUCLEAN, InvalidData;
        CheckOpenError::Journal(_) => CheckOpenError::Journal(JournalError::NoJournal), ENOENT, NotFound;
        CheckOpenError::JournalDevice(_) => CheckOpenError::JournalDevice(FileError::NotADevice { path: path() }), EINVAL, InvalidInput;
        CheckOpenError::NoRandomness(_) => CheckOpenError::NoRandomness(denied()), EACCES, PermissionDenied;
        CheckOpenError::InUse { .. } => CheckOpenError::InUse { node: text(), device: text() }, EBUSY, ResourceBusy;
        CheckOpenError::InCheck { .. } => CheckOpenError::InCheck { node: text() }, EBUSY, ResourceBusy;
    } }
    every_variant! { RunFailure {
        RunFailure::Open(_) => RunFailure::Open(CheckOpenError::InCheck { node: text() }), EBUSY, ResourceBusy;
        RunFailure::Check(_) => RunFailure::Check(CheckError::Stopped), ECANCELED, Other;
    } }
    let failed = || RunError { failure: CheckError::Stopped.into(), findings: Vec::new() };
    every_variant_as_one_error! { RunError {
        RunError { .. } => failed(), ECANCELED, Other;
    } }
}

#[test]
fn errors_of_mounts() {
    every_variant_as_one_error! { MountError {
        MountError::System { .. } => MountError::System { path: path(), what: "mount", source: denied() }, EACCES, PermissionDenied;
        MountError::Fusermount { .. } => MountError::Fusermount { path: path(), said: text() }, EPERM, PermissionDenied;
        MountError::BeyondFusermount(_) => MountError::BeyondFusermount("suid"), EPERM, PermissionDenied;
        MountError::Image(_) => MountError::Image(UrlError::LeftOut { scheme: "s:", feature: "s" }), EOPNOTSUPP, Unsupported;
        MountError::Volume { .. } => MountError::Volume { image: path(), source: Cause::ReadOnly }, EROFS, ReadOnlyFilesystem;
        MountError::JournalNotFound { .. } => MountError::JournalNotFound { image: path(), source: JournalError::NoJournal }, ENOENT, NotFound;
        MountError::JournalNumber { .. } => MountError::JournalNumber { number: 1, source: denied() }, EACCES, PermissionDenied;
        MountError::Sandbox(_) => MountError::Sandbox(SandboxError::Seccomp(text())), EPERM, PermissionDenied;
        MountError::Simulated => MountError::Simulated, EOPNOTSUPP, Unsupported;
        MountError::NotMounted(_) => MountError::NotMounted(path()), EINVAL, InvalidInput;
        MountError::Frozen(_) => MountError::Frozen(path()), EBUSY, ResourceBusy;
        MountError::NotFrozen(_) => MountError::NotFrozen(path()), EINVAL, InvalidInput;
        MountError::NotGrown { .. } => MountError::NotGrown { path: path(), errno: ENOSPC, what: text() }, ENOSPC, StorageFull;
        MountError::Options(_) => MountError::Options(OptionError::Unknown(text())), EINVAL, InvalidInput;
        MountError::ServerEnded => MountError::ServerEnded, EIO, Other;
    } }
    every_variant_as_one_error! { MounterError {
        MounterError::Mount(_) => MounterError::Mount(MountError::Simulated), EOPNOTSUPP, Unsupported;
        MounterError::Program { .. } => MounterError::Program { program: path(), source: denied() }, EACCES, PermissionDenied;
        MounterError::Refused(_) => MounterError::Refused(text()), EIO, Other;
    } }
}

#[test]
fn errors_of_volumes() {
    use extant::rooms::ondisk::{BlockNo, GroupNo};
    use inspect::{ExtentsError, InspectError};

    every_variant_as_one_error! { OpenError {
        OpenError::Device(_) => OpenError::Device(UrlError::LeftOut { scheme: "s:", feature: "s" }), EOPNOTSUPP, Unsupported;
        OpenError::Volume(_) => OpenError::Volume(Cause::Format(format())), EUCLEAN, InvalidData;
    } }
    every_variant_as_one_error! { ExtentsError {
        ExtentsError::Volume(_) => ExtentsError::Volume(Cause::NotFound), ENOENT, NotFound;
        ExtentsError::TooManyBlocks => ExtentsError::TooManyBlocks, EUCLEAN, InvalidData;
    } }
    let off = || InspectError::BitmapOffVolume { group: GroupNo(0), block: BlockNo(1) };
    every_variant_as_one_error! { InspectError {
        InspectError::Device(_) => InspectError::Device(device()), EACCES, PermissionDenied;
        InspectError::Format(_) => InspectError::Format(format()), EUCLEAN, InvalidData;
        InspectError::Superblock(_) => InspectError::Superblock(OfflineError::Format(format())), EUCLEAN, InvalidData;
        InspectError::Journal(_) => InspectError::Journal(JournalError::NoJournal), ENOENT, NotFound;
        InspectError::JournalDevice(_) => InspectError::JournalDevice(FileError::NotADevice { path: path() }), EINVAL, InvalidInput;
        InspectError::BlockSize { .. } => InspectError::BlockSize { found: 1024, wanted: 4096 }, EINVAL, InvalidInput;
        InspectError::NoSuperblock(_) => InspectError::NoSuperblock(1), EUCLEAN, InvalidData;
        InspectError::BitmapOffVolume { .. } => off(), EUCLEAN, InvalidData;
        InspectError::MmpOffVolume(_) => InspectError::MmpOffVolume(BlockNo(1)), EUCLEAN, InvalidData;
    } }
    let error = extant::Error::from(missing());
    assert_eq!((error.errno(), error.kind()), (ENOENT, ErrorKind::NotFound));
    assert_eq!(error.to_string(), "/missing: not found");
    let error = extant::Error::from(Cause::NotEmpty);
    assert_eq!((error.errno(), error.kind()), (39, ErrorKind::DirectoryNotEmpty));
    let error = extant::Error::from(device());
    assert_eq!((error.errno(), error.kind()), (EACCES, ErrorKind::PermissionDenied));
    let error = extant::Error::from(denied());
    assert_eq!((error.errno(), error.source().is_none()), (EACCES, true));
    assert_eq!(io::Error::from(error).raw_os_error(), Some(EACCES));
}
