//! Every row of mkfs-options.tsv: what mke2fs 1.47.4 made of an option string, we make too.

mod mkfs_table;

use std::collections::BTreeMap;

use extant_image::mkfs::figures::figures;
use extant_image::mkfs::{Figures, Identity, MkfsError, NewVolume, Options, Program};
use extant_layout::RunSet;
use extant_ondisk::superblock::{DefaultMountOptions, ErrorPolicy};
use mkfs_table::{MACHINE, rows};

fn or_dash(value: impl ToString, shown: bool) -> String {
    if shown { value.to_string() } else { "-".to_owned() }
}

/// The figures as the table's columns show them.
fn columns(figures: &Figures) -> BTreeMap<&'static str, String> {
    let bigalloc = figures.cluster_size != figures.block_size;
    let journal = figures.journal.filter(|_| !figures.is_journal_device());
    let features = figures.features.to_string();
    let has = |name: &str| features.split(' ').any(|feature| feature == name);
    let mut flags = Vec::new();
    if !figures.is_journal_device() {
        flags.push("signed_directory_hash");
    }
    if figures.extended.test_fs {
        flags.push("test_filesystem");
    }
    let mut mount = Vec::new();
    for (flag, name) in
        [(DefaultMountOptions::USER_XATTR, "user_xattr"), (DefaultMountOptions::ACL, "acl")]
    {
        if figures.mount_options.contains(flag) {
            mount.push(name);
        }
    }
    let list =
        |words: &[&str]| if words.is_empty() { "(none)".to_owned() } else { words.join(" ") };
    BTreeMap::from([
        ("features", if features.is_empty() { "(none)".to_owned() } else { features.clone() }),
        ("block_size", figures.block_size.to_string()),
        ("blocks", figures.blocks.to_string()),
        ("inodes", figures.inodes().to_string()),
        ("inode_size", figures.inode_size.to_string()),
        ("first_block", figures.first_data_block.to_string()),
        ("blocks_per_group", figures.blocks_per_group.to_string()),
        (
            "clusters_per_group",
            or_dash(figures.blocks_per_group / figures.blocks_per_cluster(), bigalloc),
        ),
        ("cluster_size", or_dash(figures.cluster_size, bigalloc)),
        ("inodes_per_group", figures.inodes_per_group.to_string()),
        ("desc_size", or_dash(figures.desc_size.unwrap_or(0), figures.desc_size.is_some())),
        ("reserved_gdt", or_dash(figures.reserved_gdt_blocks, figures.reserved_gdt_blocks > 0)),
        ("flex_bg_size", or_dash(figures.flex_bg_size, figures.flex_bg_size > 1)),
        ("reserved_blocks", figures.reserved_blocks.to_string()),
        ("journal_inode", or_dash(8, journal.is_some())),
        (
            "journal_blocks",
            or_dash(figures.journal.map_or(0, |j| j.blocks), figures.journal.is_some()),
        ),
        ("first_meta_bg", or_dash(figures.first_meta_bg, figures.first_meta_bg > 0)),
        (
            "raid_stride",
            or_dash(figures.extended.stride.unwrap_or(0), figures.extended.stride.is_some()),
        ),
        (
            "raid_stripe",
            or_dash(
                figures.extended.stripe_width.unwrap_or(0),
                figures.extended.stripe_width.is_some(),
            ),
        ),
        ("hash", ["legacy", "half_md4", "tea"][usize::from(figures.hash_version)].to_owned()),
        ("checksum_type", if has("metadata_csum") { "crc32c" } else { "-" }.to_owned()),
        (
            "errors",
            match figures.errors {
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
    figures: Figures,
) -> Result<BTreeMap<&'static str, String>, MkfsError> {
    if figures.is_journal_device() {
        return Ok(BTreeMap::new());
    }
    let identity = Identity::new(options, &figures, Some("1000000000"))?;
    let bad = RunSet::new();
    let mut volume = NewVolume::new(figures, identity, &bad)?;
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
            let figures = figures(Program::Mke2fs, &options, &config, &row.device())?;
            let counts = counts(&options, figures.clone())?;
            Ok((figures, counts))
        });
        let mut deviate = |what: String| {
            deviations.push(format!("{} {opts}: {what}", row.cell("conf")));
        };
        match (outcome, row.cell("exit")) {
            (Ok((figures, counts)), "0") => {
                let mut columns = columns(&figures);
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
