//! Reads the sources that are named and says what is in them, how long it took and how much memory.

use std::error::Error;
use std::time::Instant;

use extant_image::source::{NodeKind, ReadOptions, Source, read_sources};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = std::env::args_os().skip(1);
    let sources = arguments.map(|text| Source::of(&text)).collect::<Result<Vec<_>, _>>()?;
    let options = ReadOptions { spool: std::env::temp_dir(), ..ReadOptions::default() };
    let start = Instant::now();
    let tree = read_sources(&sources, &options)?;
    let elapsed = start.elapsed();
    let regular = tree.nodes().filter(|(_, node)| node.kind() == NodeKind::Regular);
    let (files, bytes) =
        regular.fold((0, 0), |(files, bytes), (_, node)| (files + 1, bytes + node.size()));
    println!(
        "{} nodes, {} names, {files} files of {bytes} bytes",
        tree.node_count(),
        tree.dirent_count()
    );
    println!("{:.2} s, peak {} MiB", elapsed.as_secs_f64(), peak_memory()? >> 10);
    Ok(())
}

/// KiB, as the kernel counts for this process.
fn peak_memory() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmHWM in /proc/self/status")?.parse()?)
}
