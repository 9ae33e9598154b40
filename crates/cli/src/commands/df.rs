//! `extant df`: the space and the inodes of images, used and free, as df(1) shows them of mounts.

use std::ffi::OsString;

use extant::StatFs;
use extant::rooms::reader::VolumeRead;
use serde::Serialize;

use crate::block_unit::{Unit, UnitArgs};
use crate::failure::{At, Failure};
use crate::image_path::{ImagePath, image_paths};
use crate::output::JsonName;
use crate::reader::Images;
use crate::session::Session;

/// Show how much of each image is used and free
///
/// The figures are those of df(1) for a mount of the image: the size leaves out the volume's own
/// metadata, and what is reserved for root is not available.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show inodes instead of blocks
    #[arg(short)]
    inodes: bool,
    #[command(flatten)]
    unit: UnitArgs,
    /// Print blocks and inodes as JSON, sizes in bytes
    #[arg(long)]
    json: bool,
    /// File or block device
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<OsString>,
    /// Do not restrict this process (landlock, seccomp)
    #[arg(long)]
    no_sandbox: bool,
}

/// Figures of one image; sizes in bytes.
#[derive(Serialize)]
struct Usage {
    image: JsonName,
    block_size: u32,
    size: u64,
    used: u64,
    free: u64,
    available: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_free: u64,
}

impl Usage {
    fn new(inside: &ImagePath, stat: &StatFs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(stat.block_size));
        let inodes = u64::from(stat.inodes);
        Self {
            image: inside.name.as_encoded_bytes().into(),
            block_size: stat.block_size,
            size: bytes(stat.blocks),
            used: bytes(stat.blocks.saturating_sub(stat.free_blocks)),
            free: bytes(stat.free_blocks),
            available: bytes(stat.available_blocks),
            inodes,
            inodes_used: inodes.saturating_sub(stat.free_inodes),
            inodes_free: stat.free_inodes,
        }
    }
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let operands = image_paths(None, &self.images)?;
        operands.iter().try_for_each(ImagePath::check_is_image)?;
        let mut images = Images::restricted(&operands, self.no_sandbox, session)?;
        let mut found = Vec::new();
        for inside in &operands {
            let stat = images.of(inside).and_then(|image| image.volume.stat_fs().at(&inside.name));
            match stat {
                Ok(stat) => found.push((inside, Usage::new(inside, &stat))),
                Err(failure) => session.error(failure)?,
            }
        }
        if self.json {
            return session
                .out
                .json_array(|element| found.iter().try_for_each(|(_, usage)| element(usage)));
        }
        self.show(&found, session)
    }

    fn show(&self, found: &[(&ImagePath, Usage)], session: &mut Session) -> Result<(), Failure> {
        if found.is_empty() {
            return Ok(());
        }
        let unit = self.unit.unit();
        let mut rows = vec![match (self.inodes, &unit) {
            (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"].map(str::to_owned),
            (false, Unit::Human) => ["Size", "Used", "Avail", "Use%"].map(str::to_owned),
            (false, Unit::Blocks { .. }) => {
                [&*unit.title(), "Used", "Available", "Use%"].map(str::to_owned)
            }
        }];
        rows.extend(found.iter().map(|(_, usage)| self.row(usage, &unit)));
        // Those of df: it leaves room for common sizes.
        let mut widths = [5, 5, 5, 4];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let name = |inside: &ImagePath| inside.name.display().to_string();
        let names = std::iter::once("Image".to_owned()).chain(found.iter().map(|it| name(it.0)));
        let names: Vec<String> = names.collect();
        let first = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for (at, (name, row)) in names.iter().zip(&rows).enumerate() {
            // The name as it was typed; the rest of its column is filled.
            match at.checked_sub(1).and_then(|at| found.get(at)) {
                Some((inside, _)) => session.out.name(inside.name.as_encoded_bytes())?,
                None => session.out.bytes(name.as_bytes())?,
            }
            let gap = first - name.chars().count();
            session.out.bytes(" ".repeat(gap).as_bytes())?;
            for (cell, width) in row.iter().zip(widths) {
                session.out.bytes(format!(" {cell:>width$}").as_bytes())?;
            }
            session.out.bytes(b"\n")?;
        }
        Ok(())
    }

    fn row(&self, usage: &Usage, unit: &Unit) -> [String; 4] {
        if self.inodes {
            let count = |number: u64| match unit {
                Unit::Human => unit.show(number),
                Unit::Blocks { .. } => number.to_string(),
            };
            let share = percent(usage.inodes_used, usage.inodes_free);
            return [
                count(usage.inodes),
                count(usage.inodes_used),
                count(usage.inodes_free),
                share,
            ];
        }
        let show = |size| unit.show(size);
        let share = percent(usage.used, usage.available);
        [show(usage.size), show(usage.used), show(usage.available), share]
    }
}

/// The used part of what a user may use, rounded up; `-` of nothing.
fn percent(used: u64, available: u64) -> String {
    let (used, all) = (u128::from(used), u128::from(used) + u128::from(available));
    match all {
        0 => "-".to_owned(),
        all => format!("{}%", (used * 100).div_ceil(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn shares_are_rounded_up() {
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(0, 10), "0%");
        assert_eq!(percent(1, 999), "1%");
        assert_eq!(percent(1, 0), "100%");
        assert_eq!(percent(u64::MAX, u64::MAX), "50%");
    }
}
