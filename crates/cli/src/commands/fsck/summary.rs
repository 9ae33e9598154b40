//! The output at the end: the closing line, statistics, costs, and the same as JSON.

use std::time::Duration;

use extant::Verdict;
use extant::rooms::check::store::Traffic;
use extant::rooms::check::{
    Discontinuity, DiscontinuityTarget, HandledFinding, Report, VolumeStatistics,
};
use extant::rooms::ondisk::superblock::Superblock;
use serde_json::json;

use super::console::put;
use crate::failure::Failure;
use crate::finding_json::JsonFinding;
use crate::out_line;
use crate::output::Output;

/// How a check ended.
pub(super) struct Summary<'a> {
    pub(super) report: &'a Report,
    /// How much of what it took was asked for: -t, -tt.
    pub(super) levels: u8,
}

fn json_findings(
    findings: &[HandledFinding],
    counts: &dyn Fn(&HandledFinding) -> bool,
) -> Vec<JsonFinding> {
    findings.iter().map(|outcome| JsonFinding::of(outcome, Some(counts(outcome)))).collect()
}

/// The document of a run that did not come to its end; `error` says why, where no finding does.
pub(super) fn print_json_alone(
    image: &str,
    (code, verdict, error): (u8, Verdict, Option<&Failure>),
    findings: &[HandledFinding],
    counts: &dyn Fn(&HandledFinding) -> bool,
) {
    let mut document = json!({
        "image": image,
        "exit_code": code,
        "verdict": verdict.name(),
        "finished": false,
        "modified": findings.iter().any(|outcome| outcome.repaired),
        "findings": json_findings(findings, counts),
    });
    if let Some(error) = error {
        document["error"] = error.to_string().into();
    }
    put(&format!("{document:#}\n"));
}

fn used(superblock: &Superblock) -> (u64, u64) {
    (
        u64::from(superblock.inodes_count).saturating_sub(u64::from(superblock.free_inodes)),
        superblock.blocks_count.saturating_sub(superblock.free_blocks),
    )
}

/// The line for a volume that needs no check.
pub(super) fn clean_line(name: &str, superblock: &Superblock) -> String {
    let (inodes, blocks) = used(superblock);
    format!(
        "{name}: clean, {inodes}/{} files, {blocks}/{} blocks",
        superblock.inodes_count, superblock.blocks_count
    )
}

fn percent(part: u64, whole: u64) -> f64 {
    // Counts have 48 bits: a double holds them.
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn jump_as_json(jump: &Discontinuity) -> serde_json::Value {
    let file_block = match jump.to {
        DiscontinuityTarget::Extent(at, _) | DiscontinuityTarget::Data(at) => Some(at.0),
        DiscontinuityTarget::Indirect(_) => None,
    };
    json!({
        "inode": jump.inode.0,
        "file_block": file_block,
        "expected": jump.expected.0,
        "found": jump.found.0,
    })
}

impl Summary<'_> {
    pub(super) fn print(&self, name: &str, is_preen: bool, is_verbose: bool) {
        let report = self.report;
        if report.is_modified() && !is_preen {
            out_line!("\n{name}: ***** FILE SYSTEM WAS MODIFIED *****");
        }
        if report.errors_left {
            out_line!("\n{name}: ********** WARNING: Filesystem still has errors **********\n");
        }
        if let Some(superblock) = &report.superblock {
            if is_verbose {
                print_statistics(superblock, &report.statistics);
            } else {
                let (inodes, blocks) = used(superblock);
                out_line!(
                    "{name}: {inodes}/{} files ({:.1}% non-contiguous), {blocks}/{} blocks",
                    superblock.inodes_count,
                    percent(report.statistics.fragmented, inodes),
                    superblock.blocks_count
                );
            }
        }
        if self.levels > 1 {
            for figures in &report.passes {
                out_line!("Pass {}: {}", figures.pass, cost(figures.time, figures.traffic, None));
            }
        }
        if self.levels > 0 {
            out_line!("{}", cost(report.time, report.traffic, Some(report.memory)));
            if report.windows > 1 {
                out_line!("The passes ran {} times, limited by memory.", report.windows);
            }
        }
    }

    pub(super) fn print_json(&self, image: &str) -> Result<(), Failure> {
        let report = self.report;
        let statistics = &report.statistics;
        let passes: Vec<_> = report
            .passes
            .iter()
            .map(|figures| {
                json!({
                    "pass": figures.pass,
                    "seconds": figures.time.as_secs_f64(),
                    "bytes_read": figures.traffic.read,
                    "bytes_written": figures.traffic.written,
                })
            })
            .collect();
        let volume = report.superblock.as_ref().map(|superblock| {
            let (inodes, blocks) = used(superblock);
            json!({
                "inodes_used": inodes,
                "inodes": superblock.inodes_count,
                "blocks_used": blocks,
                "blocks": superblock.blocks_count,
            })
        });
        let document = json!({
            "image": image,
            "exit_code": report.exit_code(),
            "verdict": Verdict::of_report(report).name(),
            "finished": true,
            "modified": report.is_modified(),
            "errors_left": report.errors_left,
            "findings": json_findings(&report.findings, &|outcome| report.counts(outcome)),
            "repaired": report.findings.iter().filter(|outcome| outcome.repaired).count(),
            "volume": volume,
            "census": {
                "regular_files": statistics.regular,
                "directories": statistics.directories,
                "symbolic_links": statistics.symlinks,
                "fast_symbolic_links": statistics.fast_symlinks,
                "character_devices": statistics.char_devices,
                "block_devices": statistics.block_devices,
                "fifos": statistics.fifos,
                "sockets": statistics.sockets,
                "links": statistics.links,
                "fragmented": statistics.fragmented,
                "extent_depths": statistics.extent_depth,
            },
            "jumps": report.discontinuities.iter().map(jump_as_json).collect::<Vec<_>>(),
            "seconds": report.time.as_secs_f64(),
            "memory_peak": report.memory,
            "windows": report.windows,
            "rounds": report.rounds,
            "bytes_read": report.traffic.read,
            "bytes_written": report.traffic.written,
            "passes": passes,
        });
        let mut out = Output::new();
        out.json(&document)?;
        out.flush()
    }
}

fn cost(time: Duration, traffic: Traffic, memory: Option<u64>) -> String {
    let mebibytes = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let seconds = time.as_secs_f64();
    let rate = mebibytes(traffic.read + traffic.written) / seconds.max(1e-9);
    let memory =
        memory.map_or(String::new(), |bytes| format!("Memory used: {}k, ", bytes.div_ceil(1024)));
    format!(
        "{memory}time: {seconds:5.2}, I/O read: {:.0}MB, write: {:.0}MB, rate: {rate:.2}MB/s",
        mebibytes(traffic.read).ceil(),
        mebibytes(traffic.written).ceil(),
    )
}

fn print_statistics(superblock: &Superblock, statistics: &VolumeStatistics) {
    let (inodes, blocks) = used(superblock);
    let plural = |count: u64, one: &'static str, many: &'static str| {
        if count == 1 { one } else { many }
    };
    out_line!();
    out_line!(
        "{inodes:12} {} used ({:.2}%, out of {})",
        plural(inodes, "inode", "inodes"),
        percent(inodes, u64::from(superblock.inodes_count)),
        superblock.inodes_count
    );
    let directories = statistics.fragmented_directories;
    let files = statistics.fragmented - directories;
    for (count, one, many) in [(files, "file", "files"), (directories, "directory", "directories")]
    {
        let (kind, share) = (plural(count, one, many), percent(count, inodes));
        out_line!("{count:12} non-contiguous {kind} ({share:.1}%)");
    }
    let [single, double, triple] = statistics.indirect;
    out_line!("             # of inodes with ind/dind/tind blocks: {single}/{double}/{triple}");
    let depths: Vec<String> = statistics
        .extent_depth
        .iter()
        .rev()
        .skip_while(|count| **count == 0)
        .map(u64::to_string)
        .collect();
    if !depths.is_empty() {
        let depths: Vec<String> = depths.into_iter().rev().collect();
        out_line!("             Extent depth histogram: {}", depths.join("/"));
    }
    out_line!(
        "{blocks:12} {} used ({:.2}%, out of {})",
        plural(blocks, "block", "blocks"),
        percent(blocks, superblock.blocks_count),
        superblock.blocks_count
    );
    let (bad, large) = (statistics.bad_blocks, statistics.large + statistics.own_large);
    out_line!("{bad:12} bad {}", plural(bad, "block", "blocks"));
    out_line!("{large:12} large {}", plural(large, "file", "files"));
    out_line!();
    let inodes = statistics.regular
        + statistics.directories
        + statistics.char_devices
        + statistics.block_devices
        + statistics.fifos
        + statistics.symlinks
        + statistics.sockets;
    // The names of an inode after its first; the root directory has none.
    let links = (statistics.links + 1).saturating_sub(inodes);
    let kinds = [
        (statistics.regular, "regular file", "regular files"),
        (statistics.directories, "directory", "directories"),
        (statistics.char_devices, "character device file", "character device files"),
        (statistics.block_devices, "block device file", "block device files"),
        (statistics.fifos, "fifo", "fifos"),
        (links, "link", "links"),
    ];
    for (count, one, many) in kinds {
        out_line!("{count:12} {}", plural(count, one, many));
    }
    out_line!(
        "{:12} symbolic {} ({} fast symbolic {})",
        statistics.symlinks,
        plural(statistics.symlinks, "link", "links"),
        statistics.fast_symlinks,
        plural(statistics.fast_symlinks, "link", "links")
    );
    out_line!("{:12} {}", statistics.sockets, plural(statistics.sockets, "socket", "sockets"));
    out_line!("------------");
    let files = inodes + links;
    out_line!("{files:12} {}", plural(files, "file", "files"));
}
