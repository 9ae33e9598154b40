//! Volumes of every row of mkfs-options.tsv, judged by e2fsck, dumpe2fs and the real mke2fs.

mod mkfs_table;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant_image::mkfs::{self, Program};
use extant_testkit::{Scratch, dumpe2fs_h, e2fsck_fn, tool};
use mkfs_table::{MACHINE, Row, Silent, rows};

/// Names of dumpe2fs -h behind the table's columns.
const SHOWN: &[(&str, &str)] = &[
    ("features", "Filesystem features"),
    ("block_size", "Block size"),
    ("blocks", "Block count"),
    ("inodes", "Inode count"),
    ("inode_size", "Inode size"),
    ("first_block", "First block"),
    ("blocks_per_group", "Blocks per group"),
    ("clusters_per_group", "Clusters per group"),
    ("cluster_size", "Cluster size"),
    ("inodes_per_group", "Inodes per group"),
    ("desc_size", "Group descriptor size"),
    ("reserved_gdt", "Reserved GDT blocks"),
    ("flex_bg_size", "Flex block group size"),
    ("reserved_blocks", "Reserved block count"),
    ("overhead", "Overhead clusters"),
    ("free_blocks", "Free blocks"),
    ("free_inodes", "Free inodes"),
    ("first_inode", "First inode"),
    ("journal_inode", "Journal inode"),
    ("journal_blocks", "Total journal blocks"),
    ("journal_size", "Total journal size"),
    ("journal_features", "Journal features"),
    ("first_meta_bg", "First meta block group"),
    ("raid_stride", "RAID stride"),
    ("raid_stripe", "RAID stripe width"),
    ("hash", "Default directory hash"),
    ("checksum_type", "Checksum type"),
    ("errors", "Errors behavior"),
    ("mount_opts", "Default mount options"),
    ("fs_flags", "Filesystem flags"),
    ("revision", "Filesystem revision #"),
];

/// Columns that the suite's files change.
const POPULATED: [&str; 2] = ["free_blocks", "free_inodes"];

/// Made, checked and compared; what deviates.
fn judge(row: &Row, image: &Path, corpora: &Path) -> Vec<String> {
    row.prepare(image);
    let words = row.words(image);
    let made = mkfs::run(Program::Mke2fs, words, &row.environment(corpora), &mut Silent);
    if let Err(error) = made {
        return vec![format!("not made: {error}")];
    }
    let mut deviations = Vec::new();
    if row.cell("block_size") == "-" {
        return deviations;
    }
    if !row.cell("features").contains("journal_dev")
        && let Err(said) = e2fsck_fn(image)
    {
        deviations.push(format!("e2fsck: {said}"));
    }
    let shown = match dumpe2fs_h(image) {
        Ok(shown) => shown,
        Err(said) => return vec![format!("dumpe2fs: {said}")],
    };
    let populated = row.cell("note").starts_with("populated");
    for (column, name) in SHOWN {
        let found = shown.get(*name).map_or("-", String::as_str);
        let expected = row.cell(column);
        if found != expected && !(populated && POPULATED.contains(column)) {
            deviations.push(format!("{name}: {found}, mke2fs has {expected}"));
        }
    }
    deviations
}

/// Runs a judgement of all rows on all processors.
fn judge_all(
    rows: &[Row],
    corpora: &Path,
    judge: impl Fn(&Row, &Path, &Path) -> Vec<String> + Sync,
) -> Vec<String> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let scratch = Scratch::new();
                    let found = judge(row, &scratch.join("disk.img"), corpora);
                    let head = format!("{} {}", row.cell("conf"), row.cell("opts"));
                    let mut all = all.lock().expect("no judge panics with the lock");
                    all.extend(found.into_iter().map(|what| format!("{head}: {what}")));
                }
            });
        }
    });
    all.into_inner().expect("no judge panics with the lock")
}

/// Rows that were made, small enough for a file here and for e2fsck's patience.
fn made_rows(corpora: &Path, largest: u64) -> Vec<Row> {
    let mut rows = rows(corpora);
    rows.retain(|row| {
        let bytes = row.number("blocks").unwrap_or(0) * row.number("block_size").unwrap_or(0);
        row.cell("exit") == "0" && bytes <= largest && !MACHINE.contains(&row.cell("opts"))
    });
    rows
}

#[test]
fn volumes_of_every_row_are_clean_and_as_mke2fs_has_them() {
    let Some(corpora) = extant_testkit::corpora() else {
        return extant_testkit::skipped("no corpora");
    };
    if tool("e2fsck").is_none() || tool("dumpe2fs").is_none() {
        return extant_testkit::skipped("e2fsprogs is not installed");
    }
    const LARGEST: u64 = 200 << 30;
    let rows = made_rows(&corpora, LARGEST);
    let deviations = judge_all(&rows, &corpora, judge);
    assert!(deviations.is_empty(), "{} deviations\n{}", deviations.len(), deviations.join("\n"));
    assert!(rows.len() > 290, "only {} rows", rows.len());
}
