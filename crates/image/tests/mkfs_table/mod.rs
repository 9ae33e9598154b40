//! mkfs-options.tsv: what mke2fs 1.47.4 makes of option strings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use extant_image::mkfs::{Config, DeviceInfo, MkfsError, Options};

/// One line of the table, by the names of its columns.
pub(crate) struct Row {
    cells: BTreeMap<String, String>,
}

#[allow(dead_code, reason = "each test file uses its part")]
impl Row {
    pub(crate) fn cell(&self, name: &str) -> &str {
        &self.cells[name]
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.cell(name).parse().ok()
    }

    /// The size that the file already had: that of the file system in it, where the row does not
    /// say.
    pub(crate) fn device(&self) -> DeviceInfo {
        let made = self.number("blocks").zip(self.number("block_size"));
        let mut info = DeviceInfo {
            size: Some(made.map_or(4 << 20, |(blocks, size)| blocks * size)),
            logical_sector: 512,
            physical_sector: 512,
            first_meta_bg: None,
        };
        // Made on a loop device with physical sectors of 4 KiB.
        if self.cell("case") == "m_assume_storage_prezeroed" {
            info.physical_sector = 4096;
        }
        for (name, value) in self.cell("env").split_whitespace().filter_map(|v| v.split_once('=')) {
            let value: u32 = value.parse().expect("a number");
            match name {
                "MKE2FS_DEVICE_SECTSIZE" => {
                    info.logical_sector = value;
                    info.physical_sector = value;
                }
                "MKE2FS_FIRST_META_BG" => info.first_meta_bg = Some(value),
                other => panic!("unknown variable {other}"),
            }
        }
        info
    }

    pub(crate) fn config(&self, corpora: &Path) -> Config {
        if self.cell("conf") == "none" {
            return Config::built_in();
        }
        let path = corpora.join("mkfs-conf").join(self.cell("conf"));
        Config::load(Some(&path)).expect("a configuration")
    }

    /// The rows were made with -F.
    pub(crate) fn options(&self) -> Result<Options, MkfsError> {
        let arguments = self.cell("opts").split_whitespace().map(|word| word.trim_matches('\''));
        Options::parse(std::iter::once("-F").chain(arguments).map(OsString::from))
    }
}

/// All rows.
pub(crate) fn rows(corpora: &Path) -> Vec<Row> {
    let table = std::fs::read_to_string(corpora.join("mkfs-options.tsv")).expect("the table");
    let mut lines = table.lines().map(|line| line.split('\t').map(str::to_owned));
    let names: Vec<String> = lines.next().expect("a head").collect();
    lines.map(|cells| Row { cells: names.iter().cloned().zip(cells).collect() }).collect()
}

/// Rows that depend on the machine: the hosting file system ends at 16 TiB, and -n wants the file
/// to exist.
pub(crate) const MACHINE: [&str; 2] = ["-t ext4 IMAGE 17T", "-t ext4 -n IMAGE 256M"];
