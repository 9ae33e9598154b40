//! Looks at a volume and tells what each pass cost: `look IMAGE [THREADS [MEMORY]]`, with memory in bytes.

use extant_check::{Options, Store};
use extant_device::FileDevice;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("look IMAGE [THREADS [MEMORY]]")?;
    let threads = args.next().map_or(Ok(0), |threads| threads.parse())?;
    let memory = args.next().map(|memory| memory.parse()).transpose()?;
    let options = Options { threads, memory, ..Options::default() };
    let start = options.env.elapsed();
    let store = Store::open(Arc::new(FileDevice::open(image)?))?;
    let report = extant_check::look(&store, &options)?;
    for pass in &report.passes {
        println!("pass {}: {:?}, {} bytes read", pass.pass, pass.time, pass.traffic.read);
    }
    for outcome in &report.outcomes {
        println!("{}", outcome.finding);
    }
    println!(
        "{} inodes, {} names, {} bytes of tables, {:?} in all",
        report.census.inodes,
        report.census.links,
        report.memory,
        options.env.elapsed().saturating_sub(start)
    );
    Ok(())
}
