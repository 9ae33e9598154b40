//! The source of a key: a file, a descriptor, or a user at a terminal.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use extant_device::errno;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Bytes that are kept secret, wiped when they are dropped.
pub type Secret = Zeroizing<Vec<u8>>;

/// The longest key that is read: cryptsetup's limit for key files.
const MAX_KEY: usize = 8 << 20;
/// The longest passphrase that is typed: cryptsetup's limit.
const MAX_TYPED: usize = 512;

/// Where a key comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeySource {
    /// All bytes of a file, a newline at the end too.
    File(PathBuf),
    /// All bytes up to the end of an open descriptor.
    Descriptor(u32),
    /// A line typed at the terminal, without its newline.
    Prompt,
}

/// A key that was not had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file or descriptor was not read.
    #[error("key: {from}: {source}")]
    Read {
        /// The file.
        from: String,
        /// Why not.
        source: io::Error,
    },
    /// More bytes than a key has.
    #[error("key: {from} is longer than {limit} bytes")]
    TooLong {
        /// The file.
        from: String,
        /// The limit.
        limit: usize,
    },
    /// Nothing was there.
    #[error("key: {from} is empty")]
    Empty {
        /// The file.
        from: String,
    },
    /// There is no terminal to ask at.
    #[error("no terminal to ask for the passphrase: give key-file=FILE or key-fd=N")]
    NoTerminal,
}

impl KeyError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Read { source, .. } => errno::of_io(source),
            Self::TooLong { .. } | Self::Empty { .. } => errno::EINVAL,
            Self::NoTerminal => errno::ENOKEY,
        }
    }
}

impl KeySource {
    /// Reads the key. `what` is read at a terminal.
    ///
    /// # Errors
    /// The file, the descriptor or the terminal is not there; or there are too many bytes.
    pub fn read(&self, what: &str) -> Result<Secret, KeyError> {
        let (file, from) = match self {
            Self::File(path) => (File::open(path), path.display().to_string()),
            Self::Descriptor(number) => (copy_of(*number), format!("descriptor {number}")),
            Self::Prompt => return ask(what),
        };
        let read = file.and_then(|mut file| {
            let at = file.stream_position().ok();
            let read = bytes_of(&mut file, MAX_KEY);
            // A descriptor is the caller's: the next one to read it reads the same, where that can
            // be.
            if let Some(at) = at {
                file.seek(SeekFrom::Start(at))?;
            }
            read
        });
        match read {
            Ok(Some(key)) if key.is_empty() => Err(KeyError::Empty { from }),
            Ok(Some(key)) => Ok(key),
            Ok(None) => Err(KeyError::TooLong { from, limit: MAX_KEY }),
            Err(source) => Err(KeyError::Read { from, source }),
        }
    }
}

/// A copy of a descriptor. It may name a file that cannot be opened again: a socket, or a file of
/// another user. Only where the kernel gives no copies that is tried.
fn copy_of(number: u32) -> io::Result<File> {
    let copy = pidfd_open(getpid(), PidfdFlags::empty()).and_then(|this| {
        let number = i32::try_from(number).map_err(|_| Errno::BADF)?;
        pidfd_getfd(this, number, PidfdGetfdFlags::empty())
    });
    match copy {
        Ok(copy) => Ok(File::from(copy)),
        Err(_) => File::open(format!("/proc/self/fd/{number}")),
    }
}

/// All bytes, unless there are more than `limit`. The buffer never grows, since growth would leave
/// copies in freed memory.
fn bytes_of(from: &mut impl Read, limit: usize) -> io::Result<Option<Secret>> {
    let mut buffer = Zeroizing::new(vec![0; limit + 1]);
    let mut count = 0;
    while count <= limit {
        match from.read(&mut buffer[count..]) {
            Ok(0) => return Ok(Some(Zeroizing::new(buffer[..count].to_vec()))),
            Ok(read) => count += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Asks at the terminal, with the echo off.
fn ask(what: &str) -> Result<Secret, KeyError> {
    let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/tty");
    let mut terminal = terminal.map_err(|_| KeyError::NoTerminal)?;
    let failed = |source: io::Error| KeyError::Read { from: "the terminal".to_owned(), source };
    let before = tcgetattr(&terminal).map_err(|_| KeyError::NoTerminal)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    // Input that was typed before the prompt is discarded.
    tcsetattr(&terminal, OptionalActions::Flush, &silent).map_err(|errno| failed(errno.into()))?;
    let asked = write!(terminal, "Passphrase for {what}: ");
    let line = asked.and_then(|()| line_of(&mut terminal));
    let restored = tcsetattr(&terminal, OptionalActions::Flush, &before);
    // The newline that was typed was not shown.
    let _ = writeln!(terminal);
    restored.map_err(|errno| failed(errno.into()))?;
    line.map_err(failed)?
        .ok_or(KeyError::TooLong { from: "the terminal".to_owned(), limit: MAX_TYPED })
}

fn line_of(from: &mut impl Read) -> io::Result<Option<Secret>> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_TYPED));
    let mut byte = Zeroizing::new([0]);
    loop {
        match from.read(&mut *byte) {
            Ok(0) => return Ok(Some(line)),
            Ok(_) if byte[0] == b'\n' => return Ok(Some(line)),
            Ok(_) if line.len() == MAX_TYPED => return Ok(None),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_all_bytes_up_to_the_limit() {
        let read = |bytes: &[u8]| bytes_of(&mut { bytes }, 4).unwrap().map(|key| key.to_vec());
        assert_eq!(read(b"abc\n"), Some(b"abc\n".to_vec()));
        assert_eq!(read(b""), Some(Vec::new()));
        assert_eq!(read(b"abcde"), None);
    }

    #[test]
    fn a_descriptor_is_read_from_where_it_stands_and_stays_there() {
        use std::os::fd::AsRawFd;

        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"not this but this").expect("written");
        file.seek(SeekFrom::Start(13)).expect("a place");
        let number = |file: &dyn AsRawFd| file.as_raw_fd().cast_unsigned();
        let key = KeySource::Descriptor(number(&file));
        for _ in 0..2 {
            assert_eq!(key.read("d.img").expect("a key")[..], *b"this");
        }
        let (mut one, other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        one.write_all(b"over a socket").expect("written");
        drop(one);
        let key = KeySource::Descriptor(number(&other)).read("d.img").expect("a key");
        assert_eq!(key[..], *b"over a socket");
        let error = KeySource::Descriptor(u32::MAX).read("d.img").expect_err("no descriptor");
        assert!(error.to_string().starts_with("key: descriptor 4294967295: "), "{error}");
    }

    #[test]
    fn a_key_that_is_empty_is_none() {
        let error = KeySource::File("/dev/null".into()).read("d.img").expect_err("nothing");
        assert_eq!(error.to_string(), "key: /dev/null is empty");
    }

    #[test]
    fn a_typed_line_ends_before_its_newline() {
        let read = |bytes: &[u8]| line_of(&mut { bytes }).unwrap().map(|key| key.to_vec());
        assert_eq!(read(b"secret\nmore"), Some(b"secret".to_vec()));
        assert_eq!(read(&[b'a'; MAX_TYPED + 1]), None);
    }
}
