//! Every row of mkfs-options.tsv: what mke2fs 1.47.4 made of an option string, we make too.

mod mkfs_table;

use std::collections::BTreeMap;

use extant_image::mkfs::params::params;
use extant_image::mkfs::{FsParams, Identity, MkfsError, NewVolume, Options, Program};
use extant_layout::RunSet;
use extant_ondisk::superblock::{DefaultMountOptions, ErrorPolicy};
use mkfs_table::{MACHINE, rows};

fn or_dash(value: impl ToString, shown: bool) -> String {
    if shown { value.to_string() } else { "-".to_owned() }
}

/// The figures as the table's columns show them.
fn columns(params: &FsParams) -> BTreeMap<&'static str, String> {
    let bigalloc = params.cluster_size != params.block_size;
    let journal = params.journal.filter(|_| !params.is_journal_device());
    let features = params.features.to_string();
    let has = |name: &str| features.split(' ').any(|feature| feature == name);
    let mut flags = Vec::new();
    if !params.is_journal_device() {
        flags.push("signed_directory_hash");
    }
    if params.extended.test_fs {
        flags.push("test_filesystem");
    }
    let mut mount = Vec::new();
    for (flag, name) in
        [(DefaultMountOptions::USER_XATTR, "user_xattr"), (DefaultMountOptions::ACL, "acl")]
    {
        if params.mount_options.contains(flag) {
            mount.push(name);
        }
    }
    let list =
        |words: &[&str]| if words.is_empty() { "(none)".to_owned() } else { words.join(" ") };
    BTreeMap::from([
        ("features", if features.is_empty() { "(none)".to_owned() } else { features.clone() }),
        ("block_size", params.block_size.to_string()),
        ("blocks", params.blocks.to_string()),
        ("inodes", params.inodes().to_string()),
        ("inode_size", params.inode_size.to_string()),
        ("first_block", params.first_data_block.to_string()),
        ("blocks_per_group", params.blocks_per_group.to_string()),
        (
            "clusters_per_group",
            or_dash(params.blocks_per_group / params.blocks_per_cluster(), bigalloc),
        ),
        ("cluster_size", or_dash(params.cluster_size, bigalloc)),
        ("inodes_per_group", params.inodes_per_group.to_string()),
        ("desc_size", or_dash(params.desc_size.unwrap_or(0), params.desc_size.is_some())),
        ("reserved_gdt", or_dash(params.reserved_gdt_blocks, params.reserved_gdt_blocks > 0)),
        ("flex_bg_size", or_dash(params.flex_bg_size, params.flex_bg_size > 1)),
        ("reserved_blocks", params.reserved_blocks.to_string()),
        ("journal_inode", or_dash(8, journal.is_some())),
        (
            "journal_blocks",
            or_dash(params.journal.map_or(0, |j| j.blocks), params.journal.is_some()),
        ),
        ("first_meta_bg", or_dash(params.first_meta_bg, params.first_meta_bg > 0)),
        (
            "raid_stride",
            or_dash(params.extended.stride.unwrap_or(0), params.extended.stride.is_some()),
        ),
        (
            "raid_stripe",
            or_dash(
                params.extended.stripe_width.unwrap_or(0),
                params.extended.stripe_width.is_some(),
            ),
        ),
        ("hash", ["legacy", "half_md4", "tea"][usize::from(params.hash_version)].to_owned()),
        ("checksum_type", if has("metadata_csum") { "crc32c" } else { "-" }.to_owned()),
        (
            "errors",
            match params.errors {
                ErrorPolicy::Continue => "Continue",
                ErrorPolicy::RemountReadOnly => "Remount read-only",
                ErrorPolicy::Panic => "Panic",
            }
            .to_owned(),
        ),
        ("mount_opts", list(&mount)),
        ("fs_flags", if flags.is_empty() { "-".to_owned() } else { list(&flags) }),
    ])
}

/// Results of the layout of the volume: overhead and free counts.
fn counts(
    options: &Options,
    params: FsParams,
) -> Result<BTreeMap<&'static str, String>, MkfsError> {
    if params.is_journal_device() {
        return Ok(BTreeMap::new());
    }
    let identity = Identity::new(options, &params, Some(1_000_000_000))?;
    let bad = RunSet::new();
    let mut volume = NewVolume::new(params, identity, &bad)?;
    volume.add_special_inodes(&bad)?;
    volume.add_huge_files()?;
    Ok(BTreeMap::from([
        ("overhead", volume.superblock.overhead_clusters.to_string()),
        ("free_blocks", volume.free_blocks().to_string()),
        ("free_inodes", volume.free_inodes().to_string()),
    ]))
}

#[test]
fn figures_of_every_row_are_those_of_mke2fs() {
    let Some(corpora) = extant_testkit::corpora() else {
        return extant_testkit::skipped("no corpora");
    };
    let mut deviations = Vec::new();
    let rows = rows(&corpora);
    for row in &rows {
        let opts = row.cell("opts");
        if MACHINE.contains(&opts) {
            continue;
        }
        let config = row.config(&corpora);
        let outcome = row.options().and_then(|options| {
            let params = params(Program::Mke2fs, &options, &config, &row.device())?;
            let counts = counts(&options, params.clone())?;
            Ok((params, counts))
        });
        let mut deviate = |what: String| {
            deviations.push(format!("{} {opts}: {what}", row.cell("conf")));
        };
        match (outcome, row.cell("exit")) {
            (Ok((params, counts)), "0") => {
                let mut columns = columns(&params);
                // Rows that the suite populated count the files, too.
                if !row.cell("note").starts_with("populated") {
                    columns.extend(counts);
                }
                for (name, found) in columns {
                    let expected = row.cell(name);
                    if row.cell("block_size") != "-" && found != expected {
                        deviate(format!("{name}: {found}, mke2fs has {expected}"));
                    }
                }
            }
            (Ok(_), _) => deviate("not refused".to_owned()),
            (Err(error), "0") => deviate(format!("refused: {error}")),
            (Err(_), _) => {}
        }
    }
    assert!(deviations.is_empty(), "{} deviations\n{}", deviations.len(), deviations.join("\n"));
    assert!(rows.len() > 300, "only {} rows", rows.len());
}
