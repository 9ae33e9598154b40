//! Scans a volume and prints the cost of each pass: `scan [--cached] IMAGE [THREADS [MEMORY]]`,
//! with memory in bytes; `--cached` reads all through the page cache.

use extant_check::{CheckOptions, Store};
use extant_device::{FileDevice, FileDeviceOptions};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let is_cached = args.next_if_eq("--cached").is_some();
    let image = args.next().ok_or("scan [--cached] IMAGE [THREADS [MEMORY]]")?;
    let threads = args.next().map_or(Ok(0), |threads| threads.parse())?;
    let memory = args.next().map(|memory| memory.parse()).transpose()?;
    let options = CheckOptions { threads, memory, ..CheckOptions::default() };
    let start = options.env.elapsed();
    let device: FileDevice = FileDeviceOptions::new().around_cache(!is_cached).open(image)?;
    let store = Store::open(Arc::new(device))?;
    let report = extant_check::scan(&store, &options)?;
    for pass in &report.passes {
        println!("pass {}: {:?}, {} bytes read", pass.pass, pass.time, pass.traffic.read);
    }
    for outcome in &report.findings {
        println!("{}", outcome.finding);
    }
    println!(
        "{} inodes, {} names, {} bytes of tables, {:?} in all",
        report.statistics.inodes,
        report.statistics.links,
        report.memory,
        options.env.elapsed().saturating_sub(start)
    );
    Ok(())
}
