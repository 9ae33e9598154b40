//! How long the allocator takes to choose blocks on a volume that is full and fragmented.
//!
//! `choose_blocks fill IMAGE` makes a fresh volume look 95% full: in every group but the first,
//! eight of 160 clusters stay free. The image is no sound volume any more, only its bitmaps and
//! descriptors are true. `choose_blocks time IMAGE COUNT CLUSTERS` lets the allocator find COUNT
//! times CLUSTERS clusters from places all over the volume, and prints the median, the 99th
//! percentile and the longest time of one search in microseconds, with nothing known of the volume
//! at first, and again.

use extant_device::{Device, FileDevice};
use extant_engine::edit::{AllocationRequest, Purpose};
use extant_engine::testing::{ClaimedRun, find};
use extant_engine::{Volume, VolumeOptions};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_reader::{Reader, VolumeRead};
use extant_runtime::env::Env;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// A run of free clusters, and the distance of two of them.
const RUN: u32 = 8;
const DISTANCE: u32 = 160;

fn writable(image: &str) -> Result<FileDevice, Box<dyn Error>> {
    Ok(extant_device::FileDeviceOptions::new().write(true).open(Path::new(image))?)
}

fn fill(image: &str) -> Result<(), Box<dyn Error>> {
    let volume = Reader::open(Arc::new(FileDevice::open(image)?))?;
    let geometry = volume.geometry().clone();
    let device = writable(image)?;
    let mut free = 0;
    let mut table = vec![0; geometry.block_len()];
    for index in 0..geometry.desc_blocks() {
        let block = geometry.desc_block(index);
        device.read_at(geometry.byte_of(block), &mut table)?;
        let first = index * geometry.descs_per_block();
        let end = (first + geometry.descs_per_block()).min(geometry.groups_count);
        for no in (first..end).map(GroupNo) {
            let mut bits = volume.bitmap(no, BitmapKind::Block)?;
            let clusters = geometry.group_clusters(no);
            if no.0 > 0 {
                for start in (0..clusters).step_by(DISTANCE as usize) {
                    let end = clusters.min(start + DISTANCE);
                    bitmap::set_range(&mut bits, (start + RUN).min(end)..end);
                }
            }
            let (_, at) = geometry.desc_place(no);
            let stored = &mut table[at..at + usize::from(geometry.desc_size)];
            let mut raw = RawGroupDesc::from_bytes(stored, no, &geometry)?;
            let mut desc = GroupDesc::decode(&raw, no, &geometry)?;
            desc.free_clusters = clusters - bitmap::count_set(&bits, 0..clusters);
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            bitmap::seal(&bits, BitmapKind::Block, &mut desc, &geometry);
            device.write_at(geometry.byte_of(desc.block_bitmap), &bits)?;
            desc.encode_into(&mut raw);
            raw.write_to(stored, &geometry);
            group_desc::seal(stored, no, &geometry);
            free += u64::from(desc.free_clusters);
        }
        device.write_at(geometry.byte_of(block), &table)?;
    }
    let mut bytes = [0; size_of::<RawSuperblock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let mut raw = RawSuperblock::from_bytes(&bytes, GroupNo(0))?;
    let mut superblock = Superblock::decode(&raw);
    superblock.free_blocks = free * u64::from(geometry.blocks_per_cluster);
    superblock.encode_into(&mut raw);
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    device.flush()?;
    let used = 100.0 - 100.0 * superblock.free_blocks as f64 / geometry.blocks_count as f64;
    println!("{} groups, {used:.1}% full", geometry.groups_count);
    Ok(())
}

/// Searches from places all over the volume; what was found is kept.
fn search(
    (volume, env): (&Volume, &Env),
    count: u64,
    clusters: u64,
    kept: &mut Vec<ClaimedRun>,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let geometry = volume.geometry();
    let mut times = Vec::new();
    let mut place = 1_u64;
    for _ in 0..count {
        // A sequence that visits every part (Knuth's constants).
        place =
            place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let goal = Some(BlockNo((place >> 11) % geometry.blocks_count));
        let request = AllocationRequest {
            inode: InodeNo::ROOT,
            purpose: Purpose::Metadata,
            goal,
            count: clusters * u64::from(geometry.blocks_per_cluster),
            part: None,
        };
        let start = env.elapsed();
        let found = find(volume, request)?;
        times.push(env.elapsed() - start);
        kept.push(found);
    }
    times.sort_unstable();
    Ok(times)
}

fn time(image: &str, count: u64, clusters: u64) -> Result<(), Box<dyn Error>> {
    let options = VolumeOptions { memory: 1 << 30, ..VolumeOptions::default() };
    let device: Arc<dyn Device> = Arc::new(writable(image)?);
    let env = Env::threads();
    let volume = Volume::open(device, &env, &options)?;
    let mut kept = Vec::new();
    // The same places twice: the second time their groups are known.
    for what in ["at first", "again"] {
        let times = search((&volume, &env), count, clusters, &mut kept)?;
        let at = |part: usize| times[(times.len() - 1) * part / 100].as_nanos() as f64 / 1000.0;
        let blocks: u64 = kept.iter().map(|found| found.run().count).sum();
        println!(
            "{} groups, {clusters} clusters {what}: median {:.1}, 99% {:.1}, longest {:.1} us; {:.1} blocks a run",
            volume.geometry().groups_count,
            at(50),
            at(99),
            at(100),
            blocks as f64 / kept.len() as f64,
        );
    }
    drop(kept);
    Ok(volume.close()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["fill", image] => fill(image),
        ["time", image, count, clusters] => time(image, count.parse()?, clusters.parse()?),
        _ => {
            Err("usage: choose_blocks fill IMAGE, or choose_blocks time IMAGE COUNT CLUSTERS"
                .into())
        }
    }
}
