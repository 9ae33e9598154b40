//! Modules of the guest's kernel: which a target needs, and which those need before them.

use std::collections::{BTreeMap, BTreeSet};

use crate::target::{LabTarget, Layer, System};

/// For the disk and the way out, loaded when the guest starts.
pub(super) const OF_THE_GUEST: [&str; 3] = ["virtio_pci", "virtio_blk", "virtio_console"];

/// Those that make things faster where the processor can; not one of them is needed.
const FASTER: [&str; 3] = ["crc32c_intel", "aesni_intel", "sha256_ssse3"];

/// Modules that a target needs, in the order in which they are loaded.
pub(super) fn needed_by(target: &LabTarget) -> Vec<&'static str> {
    let mut names = match &target.system {
        System::Kernel("xfs") => vec!["crc32c_generic", "xfs"],
        System::Kernel("btrfs") => {
            vec!["crc32c_generic", "blake2b_generic", "sha256_generic", "xxhash_generic", "btrfs"]
        }
        System::Kernel("jfs") => vec!["jfs"],
        System::Kernel("nilfs2") => vec!["nilfs2"],
        System::Kernel(_) => vec!["crc32c_generic", "ext4"],
        System::Extant | System::Fuse2fs | System::ZfsFuse => vec!["fuse"],
        System::Engine | System::Model(_) | System::Dir(_) => Vec::new(),
    };
    for layer in &target.layers {
        names.push("dm_mod");
        match layer {
            Layer::Linear => {}
            Layer::Crypt => names.extend(["cbc", "sha256_generic", "essiv", "dm_crypt"]),
            Layer::CryptXts => names.extend(["ecb", "xts", "dm_crypt"]),
        }
    }
    names
}

/// Those that are loaded with a target where they can be.
pub(super) fn wanted_by(target: &LabTarget) -> Vec<&'static str> {
    if needed_by(target).is_empty() { Vec::new() } else { FASTER.to_vec() }
}

/// All that any target needs, and those that are wanted.
pub(super) fn all() -> BTreeSet<&'static str> {
    let stacked =
        ["ext4+linear+crypt", "ext4+crypt-xts", "xfs", "btrfs", "jfs", "nilfs2", "zfs-fuse"];
    let targets = stacked.map(|text| text.parse::<LabTarget>().expect("targets of ours"));
    let needed = targets.iter().flat_map(needed_by);
    needed.chain(OF_THE_GUEST).chain(FASTER).collect()
}

/// A module's name: files have hyphens where the kernel has underscores.
pub(super) fn name_of(file: &str) -> Option<String> {
    let file = file.rsplit('/').next()?;
    let stem = file.strip_suffix(".xz").unwrap_or(file).strip_suffix(".ko")?;
    Some(stem.replace('-', "_"))
}

/// The dependencies of a module: `depends=` in its section `.modinfo`, whose texts end with NUL.
pub(super) fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let list = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// The files to load, in order, for a module, itself last. Built-in modules have no file. `None`:
/// some module is neither.
pub(super) fn closure(
    name: &str,
    depends: &BTreeMap<String, Vec<String>>,
    built_in: &BTreeSet<String>,
) -> Option<Vec<String>> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    // Each waits until what it needs is in the order: a second visit puts it there.
    let mut waiting = vec![(name.to_owned(), false)];
    while let Some((name, is_ready)) = waiting.pop() {
        if is_ready {
            order.push(name);
            continue;
        }
        if built_in.contains(&name) || !seen.insert(name.clone()) {
            continue;
        }
        let needed = depends.get(&name)?;
        waiting.push((name, true));
        waiting.extend(needed.iter().rev().map(|needed| (needed.clone(), false)));
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_loaded_before_it_and_once() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let depends: BTreeMap<String, Vec<String>> = [
            ("ext4", list(&["jbd2", "mbcache", "crc16"])),
            ("jbd2", list(&["crc16", "low"])),
            ("mbcache", list(&[])),
            ("low", list(&[])),
            ("a", list(&["b"])),
            ("b", list(&["a"])),
        ]
        .map(|(name, needed)| (name.to_owned(), needed))
        .into();
        let built_in = BTreeSet::from(["crc16".to_owned()]);
        let of = |name| closure(name, &depends, &built_in);
        assert_eq!(of("ext4"), Some(list(&["low", "jbd2", "mbcache", "ext4"])));
        assert_eq!(of("crc16"), Some(list(&[])));
        assert_eq!(of("xfs"), None);
        assert_eq!(of("a"), Some(list(&["b", "a"])), "a circle ends");
    }

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF..\0license=GPL\0depends=dm-mod,crc16\0name=x\0";
        assert_eq!(depends(module), ["dm_mod", "crc16"]);
        assert_eq!(depends(b"\0depends=\0"), [""; 0]);
        assert_eq!(depends(b"nothing"), [""; 0]);
        assert_eq!(name_of("a/dm-crypt.ko.xz").as_deref(), Some("dm_crypt"));
        assert_eq!(name_of("a/modules.dep"), None);
    }

    #[test]
    fn every_layer_and_system_has_its_modules() {
        let needs = |text: &str| needed_by(&text.parse().expect("a target"));
        assert_eq!(
            needs("ext4+linear+crypt"),
            [
                "crc32c_generic",
                "ext4",
                "dm_mod",
                "dm_mod",
                "cbc",
                "sha256_generic",
                "essiv",
                "dm_crypt"
            ]
        );
        assert_eq!(needs("zfs-fuse"), ["fuse"]);
        assert!(needs("engine").is_empty() && wanted_by(&"engine".parse().expect("it")).is_empty());
        assert!(all().contains("nilfs2") && all().contains("virtio_blk"));
    }
}
