//! The server: opens, mounts, restricts itself, reads, answers, and ends in order.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io, thread};

use extant_device::{Device, Direct, FileDevice, FileDeviceOptions, block_devices};
use extant_engine::{GrowthPlanner, OpenVolume, Volume, VolumeOptions};
use extant_reader::{
    BrokenIndex, Error, ExternalJournal, Journal, JournalError, ReaderOptions, SuperblockAt,
};
use extant_runtime::env::Env;
use extant_storage::{DeviceUrl, Files, KeySource, Schemes, stat_host};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::MountError;
use crate::mountpoint::{self, Detach, mount_at};
use crate::options::MountOptions;
use crate::sandbox;
use crate::server::Server;
use crate::service::FileService;
use crate::transport::{CpuLatencyRequest, FUSE_DEVICE, Fuse, Rings, Transport};
use crate::unmount;

/// Messages of the server to the supervisor: a word, and for the first the device number of the
/// mount.
pub(crate) const MOUNTED: &str = "mounted";
pub(crate) const READY: &str = "ready";
pub(crate) const ASKS_TO_STOP: &str = "asks-to-stop";
/// The mount is gone; whatever is mounted there from now on is another one, even of the same device
/// number.
pub(crate) const UNMOUNTED: &str = "unmounted";
/// The thread of the number that follows lives as long as the server.
pub(crate) const LIVES: &str = "lives";
/// Messages of the supervisor to the server.
pub(crate) const STOP: &str = "stop";

/// Event loops for each processor: some wait for the device.
const LOOPS_A_PROCESSOR: usize = 2;
const MIN_LOOPS: usize = 4;
const MAX_LOOPS: usize = 32;

/// Memory of the volume by default: the kernel's cache delays writes as well.
const DEFAULT_MEMORY: u64 = 64 << 20;

/// An image and its mount point.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// The image, as a device URL.
    pub image: OsString,
    /// The schemes that its name may have.
    pub schemes: Schemes,
    /// The mount point.
    pub point: PathBuf,
    /// The options of `-o`.
    pub options: MountOptions,
    /// Whether the server restricts itself.
    pub sandbox: bool,
    /// Plans the growth of the volume; without it the volume does not grow while it is mounted.
    pub planner: Option<Arc<dyn GrowthPlanner>>,
    /// A descriptor from which the key of the image is read, whatever the image's name.
    pub key_descriptor: Option<u32>,
}

enum Event {
    /// The mount is gone.
    Unmounted(io::Result<()>),
    /// A signal requests the end.
    Signal,
    /// The supervisor's order to end.
    Stop,
}

/// Mounts and serves until the mount is gone, or until the process at the other end of `control`
/// orders the end; then everything is on the device and the volume is marked clean. Call it before
/// any other thread is started.
///
/// # Errors
/// The volume was not mounted; or it could not be closed well.
pub fn serve(request: &MountRequest, control: UnixStream) -> Result<(), MountError> {
    let options = &request.options;
    let url = DeviceUrl::parse(&request.image, &request.schemes, stat_host)?;
    if url.is_simulated() {
        return Err(MountError::Simulated);
    }
    let image = url.path().canonicalize().unwrap_or_else(|_| url.path().to_owned());
    // The kernel holds one device for a mount.
    let has_base = url.overlay().is_some();
    let holds = url.parts.len() == 1 && !has_base && mountpoint::can_hold(&image);
    let mut files = open_files(&url, options, holds)?;
    let keys = match request.key_descriptor {
        Some(number) => url.keys_from(&KeySource::Descriptor(number))?,
        None => url.keys()?,
    };
    let found = match (journal_path(options)?, url.plain_device(&files)) {
        (None, Some(Ok(device))) => find_journal(&*device, options)
            .map_err(|error| not_opened(&image, Error::Journal(error)))?,
        // If it is not named, opening the image reports the reason.
        (named, _) => named,
    };
    let journal = found
        .map(|path| open_files(&DeviceUrl::plain(&path), options, false))
        .transpose()?
        .and_then(|files| files.first().cloned());
    let failed = |source| MountError::System {
        path: request.point.clone(),
        what: "cannot be served",
        source,
    };
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let control_in = control.try_clone().map_err(failed)?;
    let control = Arc::new(Mutex::new(control));

    let held =
        if holds { mountpoint::mount_holding(&image, &request.point, options)? } else { None };
    let mounted = match held {
        Some(mounted) => mounted,
        None => {
            if holds {
                drop(files);
                files = open_files(&url, options, false)?;
            }
            mountpoint::mount(&image, &request.point, options)?
        }
    };
    let entry = mount_at(&request.point).map_err(|source| {
        // No other process uses it yet.
        let _ = mountpoint::detach(&request.point, Detach::Dead);
        failed(source)
    })?;
    send(&control, &format!("{MOUNTED} {}", entry.map(|entry| entry.device).unwrap_or_default()));

    let fuse = transport(mounted.connection, options);
    let threads = threads(options);

    // So that the server's working directory does not keep a file system busy.
    std::env::set_current_dir("/").map_err(failed)?;

    if request.sandbox {
        match sandbox::restrict(&[Path::new(FUSE_DEVICE)])? {
            sandbox::Restricted::Fully => {}
            sandbox::Restricted::WithoutAllOfLandlock => {
                tracing::warn!("the kernel's landlock is too old for all of the sandbox");
            }
        }
    }
    // From here on bytes of the image are read.
    let env = Env::threads();
    let volume = open_volume(url.device(&files, keys)?.device, journal, options, &env)
        .map_err(|source| not_opened(&image, source))?;
    let server = Arc::new(Server::new(volume, env, options).with_planner(request.planner.clone()));
    let running = fuse.start(server.clone(), threads).map_err(failed)?;

    let (sender, events) = channel();
    watch(sender, signals, (control_in, control.clone()), running).map_err(failed)?;
    send(&control, READY);
    let outcome = wait_for_the_end(&events, &control, &server);
    server.close().map_err(|source| MountError::Volume { image, source })?;
    outcome.map_err(failed)
}

/// Mounts other files than those of a volume at `point`, with `source` as the mount's source, and
/// serves them until the mount is gone: without a supervisor and outside of the sandbox. It is for
/// programs that measure the transport.
///
/// # Errors
/// The mount was refused, or reading the kernel's requests failed.
pub fn serve_files(
    service: Arc<dyn FileService>,
    source: &Path,
    point: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let failed =
        |source| MountError::System { path: point.to_owned(), what: "cannot be served", source };
    let mounted = mountpoint::mount(source, point, options)?;
    let fuse = transport(mounted.connection, options);
    let running = fuse.start(service, threads(options)).map_err(failed)?;
    let ended = running.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
    ended.map_err(failed)
}

/// The transport of a mount. Call it before the sandbox is closed.
fn transport(connection: OwnedFd, options: &MountOptions) -> Fuse {
    let rings = if options.io_uring { prepare_rings(&connection) } else { None };
    let cpu_latency = if options.busy_poll { prepare_cpu_latency() } else { None };
    Fuse {
        connection,
        clones: fs::OpenOptions::new().read(true).write(true).open(FUSE_DEVICE).is_ok(),
        writeback_cache: options.writeback_cache,
        checks: !options.fakeroot,
        processors: processors(),
        rings,
        cpu_latency,
    }
}

/// Processors that this process may use.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Threads that answer requests.
fn threads(options: &MountOptions) -> usize {
    let usual = (processors() * LOOPS_A_PROCESSOR).clamp(MIN_LOOPS, MAX_LOOPS);
    options.threads.unwrap_or(usual)
}

/// The journal's own device as the options name it: by its path, or by its number.
fn journal_path(options: &MountOptions) -> Result<Option<PathBuf>, MountError> {
    let Some(number) = options.journal_dev else { return Ok(options.journal_path.clone()) };
    let found = block_devices::path_of(number);
    found.map(Some).map_err(|source| MountError::JournalNumber { number, source })
}

/// The journal's own device where the volume has one and the options do not name it. The superblock
/// is read for that.
fn find_journal(
    device: &dyn Device,
    options: &MountOptions,
) -> Result<Option<PathBuf>, JournalError> {
    if options.read_only && options.norecovery {
        return Ok(None);
    }
    let journal = match options.read_only {
        true => ExternalJournal::needed_to_read(device),
        false => ExternalJournal::of_volume(device),
    };
    Ok(journal.map(|journal| journal.find()).transpose()?.flatten())
}

fn not_opened(image: &Path, source: Error) -> MountError {
    let image = image.to_owned();
    match source {
        Error::Journal(source) if source.wants_device() => {
            MountError::JournalNotFound { image, source }
        }
        source => MountError::Volume { image, source },
    }
}

/// Rings for requests, if the kernel offers that: it is off unless root has switched it on.
fn prepare_rings(connection: &OwnedFd) -> Option<Rings> {
    let is_on = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").ok()?.trim() == "Y";
    // A queue for each, whether it is on or not.
    let processors = last_processor("/sys/devices/system/cpu/possible")? + 1;
    // Without them requests are read.
    is_on.then(|| Rings::prepare(connection, processors).ok())?
}

/// A claim on idle processors, of which all that are on would poll.
fn prepare_cpu_latency() -> Option<CpuLatencyRequest> {
    CpuLatencyRequest::prepare(last_processor("/sys/devices/system/cpu/online")? + 1)
}

/// The last one of a list like `0-3` or `0,2`.
fn last_processor(list: &str) -> Option<usize> {
    fs::read_to_string(list).ok()?.trim().rsplit(['-', ',']).next()?.parse().ok()
}

/// A server whose mount is gone keeps the image until all data are on the device: umount(8) does
/// not wait for that, so this does. `claimed` is whether the kernel will hold the device for the
/// mount: it refuses to if another process has it.
fn open_files(url: &DeviceUrl, options: &MountOptions, claimed: bool) -> Result<Files, MountError> {
    let read_only = options.read_only;
    // Pages of the host's cache would be memory too.
    let direct = if options.memory.is_some() { Direct::WherePossible } else { Direct::Off };
    let file = FileDeviceOptions::new().write(!read_only).shared_lock(read_only);
    let options = file.direct(direct).claimed(claimed).wait(options.wait);
    let options = options.wait_while(unmount::is_closing);
    Ok(url.open_files(&options)?)
}

fn open_volume(
    device: Arc<dyn Device>,
    journal: Option<Arc<FileDevice>>,
    options: &MountOptions,
    env: &Env,
) -> Result<OpenVolume, Error> {
    let journal = journal.map(|journal| journal as Arc<dyn Device>);
    // As the kernel does: a broken index costs time, not files.
    let on_broken_index = BrokenIndex::Scan;
    if options.read_only {
        let usual = ReaderOptions::default();
        let journal = match journal {
            _ if options.norecovery => Journal::Ignore,
            Some(journal) => Journal::ReplayExternal(journal),
            None => Journal::Replay,
        };
        let reader = ReaderOptions {
            superblock: options.superblock_at(),
            journal,
            on_broken_index,
            cache_size: options.memory.unwrap_or(usual.cache_size),
            inode_readahead_blks: options
                .inode_readahead_blks
                .unwrap_or(usual.inode_readahead_blks),
        };
        return Ok(reader.open(device)?.into());
    }
    if options.superblock_at() != SuperblockAt::Primary {
        return Err(Error::Options("cannot write a volume opened by a backup superblock"));
    }
    let usual = VolumeOptions::default();
    let live = VolumeOptions {
        on_broken_index,
        inode_readahead_blks: options.inode_readahead_blks.unwrap_or(usual.inode_readahead_blks),
        data: options.data,
        delalloc: options.delalloc,
        auto_da_alloc: options.auto_da_alloc,
        // The kernel's cache has delayed them before.
        dirty_expire: options.commit,
        commit_interval: options.commit,
        lazytime: options.lazytime,
        aborts_on_lost_data: options.aborts_on_lost_data,
        journal_io_priority: options.journal_io_priority,
        barriers: options.barriers,
        journal_checksum: options.journal_checksum,
        journal_async_commit: options.journal_async_commit,
        errors: options.errors,
        external_journal: journal,
        memory: options.memory.unwrap_or(DEFAULT_MEMORY),
        allocator: options.allocator,
        stripe: options.stripe,
        discard: options.discard,
        reserved_clusters: None,
        extents: options.extents,
        passes_group: options.passes_group,
        enforced_limits: options.enforced_limits,
        max_dir_size_kb: options.max_dir_size_kb,
        shares_xattrs: options.shares_xattrs,
        batch: options.batch_time(),
    };
    Ok(Volume::open(device, env, &live)?.into())
}

/// Sends a message to the supervisor. If it has ended, the message is dropped.
fn send(control: &Mutex<UnixStream>, word: &str) -> bool {
    let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(control, "{word}").is_ok()
}

/// Starts the threads that wait for events that end the server.
fn watch(
    sender: Sender<Event>,
    mut signals: Signals,
    (orders, control): (UnixStream, Arc<Mutex<UnixStream>>),
    running: thread::JoinHandle<io::Result<()>>,
) -> io::Result<()> {
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    let unmounted = sender.clone();
    named("unmounted").spawn(move || {
        let ended = running.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        let _ = unmounted.send(Event::Unmounted(ended));
    })?;
    let signalled = sender.clone();
    named("signals").spawn(move || {
        for _ in signals.forever() {
            if signalled.send(Event::Signal).is_err() {
                break;
            }
        }
    })?;
    named("control").spawn(move || {
        send(&control, &format!("{LIVES} {}", rustix::thread::gettid().as_raw_nonzero()));
        // The end of the socket is not an order: the mount continues without the supervisor.
        for line in BufReader::new(orders).lines().map_while(Result::ok) {
            if line == STOP {
                // Once the volume is being closed, no thread takes it. This thread stays: its end
                // would be taken for the server's.
                let _ = sender.send(Event::Stop);
            }
        }
    })?;
    Ok(())
}

fn wait_for_the_end(
    events: &Receiver<Event>,
    control: &Mutex<UnixStream>,
    server: &Server,
) -> io::Result<()> {
    loop {
        let event = events.recv();
        if !matches!(event, Ok(Event::Unmounted(_))) {
            // The kernel writes what it keeps before it unmounts.
            server.end_freeze();
        }
        match event {
            Ok(Event::Unmounted(outcome)) => {
                if outcome.is_ok() {
                    // Before the image is free: who waits for it may mount there again.
                    send(control, UNMOUNTED);
                }
                return outcome;
            }
            // The supervisor unmounts, and reports a failure; without it this is the end.
            Ok(Event::Signal) if send(control, ASKS_TO_STOP) => {}
            Ok(Event::Signal | Event::Stop) | Err(_) => return Ok(()),
        }
    }
}
