//! A volume mounted over FUSE.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, io};

use extant_device::errno;
use extant_mount::{
    MountError, canonical_point, extend_partition, freeze, grow, mounted_size, parse_options, thaw,
    unmount,
};

/// A volume was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MounterError {
    /// An option that the mount does not take, or a mount point that is not one.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The program that serves the mount could not be run.
    #[error("{}: {source}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The program ended without mounting; its message.
    #[error("{0}")]
    Refused(String),
}

impl MounterError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Mount(error) => error.errno(),
            Self::Program { source, .. } => errno::of_io(source),
            Self::Refused(_) => errno::EIO,
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> io::ErrorKind {
        errno::kind(self.errno())
    }
}

/// Mounts an image over FUSE, as `extant mount` does: the server is a process of its own,
/// restricted by a sandbox, which goes on when this program ends.
///
/// ```
/// use extant::Mounter;
///
/// // Options are checked before anything is started.
/// let refused = Mounter::new("disk.img", "/mnt").options("ro,no-such-option").mount();
/// assert!(refused.unwrap_err().to_string().contains("no-such-option"));
/// ```
#[derive(Clone, Debug)]
pub struct Mounter {
    image: OsString,
    point: PathBuf,
    options: Vec<String>,
    sandbox: bool,
    program: PathBuf,
}

impl Mounter {
    /// Mounts `image`, a path or a device URL, on the directory `point`.
    pub fn new(image: impl Into<OsString>, point: impl Into<PathBuf>) -> Self {
        Self {
            image: image.into(),
            point: point.into(),
            options: Vec::new(),
            sandbox: true,
            program: PathBuf::from("extant"),
        }
    }

    /// Mount options, separated by commas, by the names of the kernel's ext4. Later calls add to
    /// earlier ones.
    #[must_use]
    pub fn options(mut self, list: impl Into<String>) -> Self {
        self.options.push(list.into());
        self
    }

    /// Whether the server restricts itself, as it does by default.
    #[must_use]
    pub fn sandbox(mut self, sandbox: bool) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// The program `extant`; by default it is searched for in PATH.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Mounts, and returns when the volume can be used.
    ///
    /// # Errors
    /// An option is refused, the program cannot be run, or the volume cannot be mounted.
    pub fn mount(&self) -> Result<Mount, MounterError> {
        parse_options(self.options.iter().map(String::as_str)).map_err(MountError::from)?;
        let failed = |source| MounterError::Program { program: self.program.clone(), source };
        let mut command = Command::new(&self.program);
        command.arg("mount").stdin(Stdio::null()).stdout(Stdio::null());
        for list in &self.options {
            command.arg("-o").arg(list);
        }
        if !self.sandbox {
            command.arg("--no-sandbox");
        }
        let output =
            command.arg("--").arg(&self.image).arg(&self.point).output().map_err(failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(MounterError::Refused(said.trim_end().to_owned()));
        }
        Ok(Mount { point: canonical_point(&self.point)? })
    }
}

/// A volume that is mounted. It stays mounted when this is dropped.
pub struct Mount {
    point: PathBuf,
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mount").field(&self.point).finish()
    }
}

impl Mount {
    /// The directory where the volume is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Holds changes back, so that the image is whole and may be copied.
    ///
    /// # Errors
    /// The volume is frozen already, or the caller is neither root nor the owner of the mount.
    pub fn freeze(&self) -> Result<(), MountError> {
        freeze(&self.point)
    }

    /// Lets changes go on.
    ///
    /// # Errors
    /// As [`Self::freeze`]; the volume is not frozen.
    pub fn thaw(&self) -> Result<(), MountError> {
        thaw(&self.point)
    }

    /// Grows the volume to a size in bytes while it is in use, and an image file with it. Returns
    /// the size that it has then.
    ///
    /// # Errors
    /// A size that the volume or its device cannot have, a volume that is mounted read-only, or the
    /// caller is neither root nor the owner of the mount.
    pub fn grow(&self, bytes: u64) -> Result<u64, MountError> {
        let block_size = u64::from(mounted_size(&self.point)?.block_size);
        // 0 blocks would be no request.
        Ok(grow(&self.point, (bytes / block_size).max(1))?.blocks * block_size)
    }

    /// Lets the partition of the volume, the last one of a GPT in an image file, reach to the end
    /// of the file and have at least `bytes` bytes, for which the file gets longer: `0` takes what
    /// is there. The table is on the medium when this returns, and the volume keeps its size until
    /// [`Self::grow`]. Returns the size of the partition in bytes.
    ///
    /// # Errors
    /// The volume is not in such a partition, or another one lies after it; the volume is mounted
    /// read-only, or the caller is neither root nor the owner of the mount.
    pub fn extend_partition(&self, bytes: u64) -> Result<u64, MountError> {
        Ok(extend_partition(&self.point, bytes)?.device)
    }

    /// Unmounts, and returns when everything is on the device.
    ///
    /// # Errors
    /// Files are open, or the volume is not mounted any more.
    pub fn unmount(self) -> Result<(), MountError> {
        unmount(&self.point, false)
    }
}
