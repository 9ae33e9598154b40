//! What several tests need.

use std::path::{Path, PathBuf};

use extant_testkit::{is_root, tool};

/// A loop device over a file, gone with the value.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    /// `losetup` over `path`; the error says why there is none.
    pub(crate) fn over(path: &Path, sector_size: u32) -> Result<Self, String> {
        if !is_root() {
            return Err("not root".to_owned());
        }
        let losetup = tool("losetup").ok_or("no losetup here")?;
        let sector_size = sector_size.to_string();
        // Other tests take loop devices too.
        for _ in 0..20 {
            let path = path.as_os_str();
            let args =
                ["-f".as_ref(), "--show".as_ref(), "-b".as_ref(), sector_size.as_ref(), path];
            if let Ok(name) = losetup.text(args) {
                return Ok(Self(PathBuf::from(name.trim())));
            }
            pause();
        }
        Err("no free loop device".to_owned())
    }
}

/// A tenth of a second.
fn pause() {
    let env = extant_device::env::Env::threads();
    let (lock, never) = (extant_device::sync::Mutex::new(()), extant_device::sync::Condvar::new());
    env.wait_while_for(&never, &mut lock.lock(), std::time::Duration::from_millis(100), |()| true);
}

impl Drop for Loop {
    fn drop(&mut self) {
        let losetup = tool("losetup").expect("it was there");
        let result = losetup.text(["-d".as_ref(), self.0.as_os_str()]);
        if let Err(error) = result {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}
