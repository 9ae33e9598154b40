//! The output of mke2fs, in its words.

use std::fmt::Write as _;

use extant_ondisk::IncompatFeatures;

use super::identity::Identity;
use super::params::{CreatorOs, FsParams};
use super::volume::NewVolume;

/// Columns of a line of block numbers.
const LINE: usize = 72;

/// The lines before the work: sizes, UUID, locations of backups. `volume` is `None` for a journal
/// device.
pub(super) fn description(
    params: &FsParams,
    identity: &Identity,
    volume: Option<&NewVolume>,
    verbose: bool,
) -> String {
    let mut text = String::new();
    if verbose {
        verbose_params(&mut text, params, identity);
    } else {
        let (blocks, size) = (params.blocks, params.block_size / 1024);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "Creating filesystem with {blocks} {size}k blocks and {} inodes",
            params.inodes()
        );
    }
    if params.groups != 1 {
        let _ = writeln!(text, "Filesystem UUID: {}", identity.uuid);
        text.push_str("Superblock backups stored on blocks: ");
        text.push_str(&volume.map(backups).unwrap_or_default());
        text.push('\n');
    }
    text.push('\n');
    text
}

fn verbose_params(text: &mut String, params: &FsParams, identity: &Identity) {
    let label = String::from_utf8_lossy(&identity.label);
    let os = match params.creator_os {
        CreatorOs::LINUX => "Linux",
        CreatorOs::HURD => "GNU/Hurd",
        CreatorOs(3) => "FreeBSD",
        CreatorOs(4) => "Lites",
        _ => "(unknown os)",
    };
    let types: Vec<String> = params.types.iter().map(|name| format!("'{name}'")).collect();
    let log = params.block_size.trailing_zeros() - 10;
    let clusters = params.blocks_per_group / params.blocks_per_cluster();
    let _ = writeln!(text, "fs_types for mke2fs.conf resolution: {}", types.join(", "));
    let _ = writeln!(text, "Filesystem label={}", label.trim_end_matches('\0'));
    let _ = writeln!(text, "OS type: {os}");
    let _ = writeln!(text, "Block size={} (log={log})", params.block_size);
    if params.blocks_per_cluster() > 1 {
        let log = params.cluster_size.trailing_zeros() - 10;
        let _ = writeln!(text, "Cluster size={} (log={log})", params.cluster_size);
    } else {
        let _ = writeln!(text, "Fragment size={} (log={log})", params.block_size);
    }
    let _ = writeln!(
        text,
        "Stride={} blocks, Stripe width={} blocks",
        params.extended.stride.unwrap_or(0),
        params.extended.stripe_width.unwrap_or(0)
    );
    let _ = writeln!(text, "{} inodes, {} blocks", params.inodes(), params.blocks);
    let _ = writeln!(
        text,
        "{} blocks ({:.2}%) reserved for the super user",
        params.reserved_blocks, params.reserved_ratio
    );
    let _ = writeln!(text, "First data block={}", params.first_data_block);
    let plural = if params.groups == 1 { "" } else { "s" };
    let _ = writeln!(text, "{} block group{plural}", params.groups);
    let unit = if params.blocks_per_cluster() > 1 { "clusters" } else { "fragments" };
    let _ =
        writeln!(text, "{} blocks per group, {clusters} {unit} per group", params.blocks_per_group);
    let _ = writeln!(text, "{} inodes per group", params.inodes_per_group);
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
pub(super) fn done(params: &FsParams, super_only: bool, has_files: bool) -> String {
    const DONE: &str = "done                            \n";
    let mut text = format!("Allocating group tables: {DONE}");
    if !super_only {
        let _ = write!(text, "Writing inode tables: {DONE}");
        if let Some(journal) = params.journal {
            let _ = writeln!(text, "Creating journal ({} blocks): done", journal.blocks);
        }
        if has_files {
            text.push_str("Copying files into the device: done\n");
        }
        if params.features.incompat.contains(IncompatFeatures::MMP) {
            let _ = writeln!(
                text,
                "Multiple mount protection is enabled with update interval {} seconds.",
                params.mmp_interval
            );
        }
    }
    text.push_str("Writing superblocks and filesystem accounting information: done\n\n");
    text
}

/// The remark about periodic checks.
pub(super) fn remarks(params: &FsParams, identity: &Identity) -> String {
    if !params.periodic_fsck {
        return String::new();
    }
    format!(
        "This filesystem will be automatically checked every {} mounts or\n180 days, whichever \
         comes first.  Use tune2fs -c or -i to override.\n",
        identity.max_mount_count
    )
}
