//! Mappings of the kernel's device mapper below a file system, set up by dmsetup(8).
//!
//! The kernel does not take them away with a process, as it does mounts. They have names of ours:
//! those that a killed cell left are taken away before new ones are made.

use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

use super::error::{CellError, Trying};
use super::tool::run;
use crate::target::Layer;

/// First sector of a linear mapping: LVM's first extent follows its metadata, at 1 MiB.
const LINEAR_START: u64 = 2048;
/// Bytes of a sector of the device mapper.
const SECTOR: u64 = 512;

/// Mappings that are there; they go when this is dropped.
pub(super) struct Mapped {
    names: Vec<String>,
    top: PathBuf,
}

impl Mapped {
    /// Puts the layers on a device, one over the other.
    pub(super) fn over(device: &Path, layers: &[Layer]) -> Result<Self, CellError> {
        for layer in layers.iter().rev() {
            remove(&name(*layer));
        }
        let mut mapped = Self { names: Vec::new(), top: device.to_owned() };
        for layer in layers {
            let sectors = sectors(&mapped.top)?;
            let table = table(*layer, &mapped.top, sectors).ok_or_else(|| {
                CellError(format!("{}: too small for {}", mapped.top.display(), layer.name()))
            })?;
            let name = name(*layer);
            run("dmsetup", ["create", name.as_str(), "--noudevsync", "--table", table.as_str()])?;
            mapped.names.push(name);
            // Without udev no other process creates the node.
            run("dmsetup", ["mknodes"])?;
            mapped.top = Path::new("/dev/mapper").join(&mapped.names[mapped.names.len() - 1]);
        }
        Ok(mapped)
    }

    /// The device above all.
    pub(super) fn top(&self) -> &Path {
        &self.top
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for name in self.names.iter().rev() {
            remove(name);
        }
    }
}

fn name(layer: Layer) -> String {
    format!("extant-lab-{}", layer.name())
}

/// One that is not there is as good.
fn remove(name: &str) {
    let _ = run("dmsetup", ["remove", "--noudevsync", "--retry", name]);
}

fn sectors(device: &Path) -> Result<u64, CellError> {
    let file = std::fs::File::open(device).trying(device.display())?;
    Ok(rustix::fs::seek(&file, SeekFrom::End(0)).trying(device.display())? / SECTOR)
}

/// Table for dmsetup; `None` if the device is too small. The keys may be fixed: an experiment's
/// data is not secret.
fn table(layer: Layer, device: &Path, sectors: u64) -> Option<String> {
    let below = device.display();
    let crypt = |cipher: &str, key_bytes: usize| {
        let key: String = (1..=key_bytes).map(|byte| format!("{byte:02x}")).collect();
        format!("0 {sectors} crypt {cipher} {key} 0 {below} 0")
    };
    match layer {
        Layer::Linear => {
            let left = sectors.checked_sub(LINEAR_START).filter(|left| *left > 0)?;
            Some(format!("0 {left} linear {below} {LINEAR_START}"))
        }
        Layer::Crypt => (sectors > 0).then(|| crypt("aes-cbc-essiv:sha256", 32)),
        Layer::CryptXts => (sectors > 0).then(|| crypt("aes-xts-plain64", 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_the_device_mapper_reads_them() {
        let of = |layer, sectors| table(layer, Path::new("/dev/vda"), sectors);
        assert_eq!(of(Layer::Linear, 10_000).as_deref(), Some("0 7952 linear /dev/vda 2048"));
        assert_eq!(of(Layer::Linear, 2048), None);
        let crypt = of(Layer::Crypt, 8).expect("a table");
        let words: Vec<&str> = crypt.split(' ').collect();
        assert_eq!(words[..4], ["0", "8", "crypt", "aes-cbc-essiv:sha256"]);
        assert_eq!((words[4].len(), &words[5..]), (64, &["0", "/dev/vda", "0"][..]));
        let xts = of(Layer::CryptXts, 8).expect("a table");
        assert_eq!(xts.split(' ').nth(4).map(str::len), Some(128));
    }
}
