//! The output of mke2fs, in its words.

use std::fmt::Write as _;

use extant_ondisk::IncompatFeatures;

use super::figures::{CreatorOs, Figures};
use super::identity::Identity;
use super::volume::NewVolume;

/// Columns of a line of block numbers.
const LINE: usize = 72;

/// The lines before the work: sizes, UUID, locations of backups. `volume` is `None` for a journal
/// device.
pub(super) fn description(
    figures: &Figures,
    identity: &Identity,
    volume: Option<&NewVolume>,
    verbose: bool,
) -> String {
    let mut text = String::new();
    if verbose {
        figures_at_length(&mut text, figures, identity);
    } else {
        let (blocks, size) = (figures.blocks, figures.block_size / 1024);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "Creating filesystem with {blocks} {size}k blocks and {} inodes",
            figures.inodes()
        );
    }
    if figures.groups != 1 {
        let _ = writeln!(text, "Filesystem UUID: {}", identity.uuid);
        text.push_str("Superblock backups stored on blocks: ");
        text.push_str(&volume.map(backups).unwrap_or_default());
        text.push('\n');
    }
    text.push('\n');
    text
}

fn figures_at_length(text: &mut String, figures: &Figures, identity: &Identity) {
    let label = String::from_utf8_lossy(&identity.label);
    let os = match figures.creator_os {
        CreatorOs::LINUX => "Linux",
        CreatorOs::HURD => "GNU/Hurd",
        CreatorOs(3) => "FreeBSD",
        CreatorOs(4) => "Lites",
        _ => "(unknown os)",
    };
    let types: Vec<String> = figures.types.iter().map(|name| format!("'{name}'")).collect();
    let log = figures.block_size.trailing_zeros() - 10;
    let clusters = figures.blocks_per_group / figures.blocks_per_cluster();
    let _ = writeln!(text, "fs_types for mke2fs.conf resolution: {}", types.join(", "));
    let _ = writeln!(text, "Filesystem label={}", label.trim_end_matches('\0'));
    let _ = writeln!(text, "OS type: {os}");
    let _ = writeln!(text, "Block size={} (log={log})", figures.block_size);
    if figures.blocks_per_cluster() > 1 {
        let log = figures.cluster_size.trailing_zeros() - 10;
        let _ = writeln!(text, "Cluster size={} (log={log})", figures.cluster_size);
    } else {
        let _ = writeln!(text, "Fragment size={} (log={log})", figures.block_size);
    }
    let _ = writeln!(
        text,
        "Stride={} blocks, Stripe width={} blocks",
        figures.extended.stride.unwrap_or(0),
        figures.extended.stripe_width.unwrap_or(0)
    );
    let _ = writeln!(text, "{} inodes, {} blocks", figures.inodes(), figures.blocks);
    let _ = writeln!(
        text,
        "{} blocks ({:.2}%) reserved for the super user",
        figures.reserved_blocks, figures.reserved_ratio
    );
    let _ = writeln!(text, "First data block={}", figures.first_data_block);
    let plural = if figures.groups == 1 { "" } else { "s" };
    let _ = writeln!(text, "{} block group{plural}", figures.groups);
    let unit = if figures.blocks_per_cluster() > 1 { "clusters" } else { "fragments" };
    let _ = writeln!(
        text,
        "{} blocks per group, {clusters} {unit} per group",
        figures.blocks_per_group
    );
    let _ = writeln!(text, "{} inodes per group", figures.inodes_per_group);
}

fn backups(volume: &NewVolume) -> String {
    let mut text = String::new();
    let mut left = 0;
    for (index, group) in volume.geometry.backup_superblock_groups().into_iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        let number = volume.geometry.group_start(group).to_string();
        let width = number.len() + 2;
        if width > left {
            text.push_str("\n\t");
            left = LINE;
        }
        left -= width;
        text.push_str(&number);
    }
    text
}

/// The lines of the work itself, all of it done.
pub(super) fn done(figures: &Figures, super_only: bool) -> String {
    const DONE: &str = "done                            \n";
    let mut text = format!("Allocating group tables: {DONE}");
    if !super_only {
        let _ = write!(text, "Writing inode tables: {DONE}");
        if let Some(journal) = figures.journal {
            let _ = writeln!(text, "Creating journal ({} blocks): done", journal.blocks);
        }
        if figures.features.incompat.contains(IncompatFeatures::MMP) {
            let _ = writeln!(
                text,
                "Multiple mount protection is enabled with update interval {} seconds.",
                figures.mmp_interval
            );
        }
    }
    text.push_str("Writing superblocks and filesystem accounting information: done\n\n");
    text
}

/// The remark about periodic checks.
pub(super) fn remarks(figures: &Figures, identity: &Identity) -> String {
    if !figures.periodic_fsck {
        return String::new();
    }
    format!(
        "This filesystem will be automatically checked every {} mounts or\n180 days, whichever \
         comes first.  Use tune2fs -c or -i to override.\n",
        identity.max_mount_count
    )
}
