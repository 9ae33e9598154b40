//! Loop devices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{is_root, tool};

/// A loop device over a file, gone with the value.
#[derive(Debug)]
pub struct LoopDevice(pub PathBuf);

impl LoopDevice {
    /// `losetup` over `path` with sectors of `sector_size` bytes; the error says why there is none.
    pub fn over(path: &Path, sector_size: u32) -> Result<Self, String> {
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
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("no free loop device".to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let losetup = tool("losetup").expect("it was there");
        let result = losetup.text(["-d".as_ref(), self.0.as_os_str()]);
        if let Err(error) = result {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}
