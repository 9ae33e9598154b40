//! The tree of a volume as a tar archive: pax headers with extended attributes, access control
//! lists and nanoseconds, hard links, sparse files in GNU's pax form 1.0.
//!
//! One thread walks the tree and plans the archive in chunks; several read the chunks' data ahead
//! of the writer, which is the caller. Chunks are written in the order of the plan, so the archive
//! does not depend on the number of threads.

mod header;
mod plan;

use std::io::{self, Write};
use std::num::NonZeroUsize;

use crossbeam::channel::{Receiver, Sender, bounded};
use extant_reader::{LoadedInode, VolumeRead};

use plan::{Chunk, ChunkPart, Planner};

pub use plan::Problem;

/// Zero records that end an archive.
const END: usize = 2 * header::RECORD;
/// Archives are padded to a multiple of this, as tar does.
const BLOCKING: u64 = 20 * header::RECORD as u64;

/// How an archive is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that read data ahead of the writer.
    pub threads: NonZeroUsize,
}

impl Default for Options {
    /// As many threads as processors, four at most: one disk is not faster with more.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { threads: NonZeroUsize::new(processors.min(4)).unwrap_or(NonZeroUsize::MIN) }
    }
}

/// Counts of an archive.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Summary {
    /// Members, hard links among them.
    pub members: u64,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Problems that lost something.
    pub losses: u64,
}

/// Writes the tree below `start` to `out`. Members are named from `./`; a `start` that is not a
/// directory is the only member, named by `name`. Unreadable files are left out, or filled with
/// zeros if their header was written before, and passed to `on_problem`.
///
/// # Errors
/// `out` failed.
pub fn export<V: VolumeRead>(
    volume: &V,
    start: LoadedInode,
    name: &[u8],
    out: &mut dyn Write,
    options: Options,
    on_problem: &mut dyn FnMut(Problem),
) -> io::Result<Summary> {
    let threads = options.threads.get();
    // Chunks in the order of the archive, each as the place where its bytes will be. Its capacity
    // bounds the memory.
    let (to_writer, planned) = bounded::<Receiver<ReadChunk>>(2 * threads + 2);
    let (to_readers, tasks) = bounded::<(Chunk, Sender<ReadChunk>)>(2 * threads + 2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let tasks = tasks.clone();
            scope.spawn(move || {
                for (chunk, place) in tasks {
                    // The writer may have given up.
                    let _ = place.send(fill(volume, chunk));
                }
            });
        }
        drop(tasks);
        scope.spawn(move || {
            let send = |chunk: Chunk| {
                let (place, ready) = bounded(1);
                to_writer.send(ready).is_ok() && to_readers.send((chunk, place)).is_ok()
            };
            Planner::new(volume, send).run(start, name);
        });
        write_all(planned, out, on_problem)
    })
}

/// A chunk with its bytes.
struct ReadChunk {
    bytes: Vec<u8>,
    members: u64,
    problems: Vec<Problem>,
}

fn write_all(
    planned: Receiver<Receiver<ReadChunk>>,
    out: &mut dyn Write,
    on_problem: &mut dyn FnMut(Problem),
) -> io::Result<Summary> {
    let mut summary = Summary::default();
    for ready in planned {
        let Ok(ready) = ready.recv() else {
            return Err(io::Error::other("a reader thread failed"));
        };
        for problem in ready.problems {
            summary.losses += u64::from(problem.is_loss);
            on_problem(problem);
        }
        out.write_all(&ready.bytes)?;
        summary.members += ready.members;
        summary.bytes += ready.bytes.len() as u64;
    }
    let total = (summary.bytes + END as u64).next_multiple_of(BLOCKING);
    // Less than END + BLOCKING.
    out.write_all(&vec![0; (total - summary.bytes) as usize])?;
    out.flush()?;
    summary.bytes = total;
    Ok(summary)
}

/// Reads the data of a chunk. Unreadable data become zeros.
fn fill<V: VolumeRead>(volume: &V, chunk: Chunk) -> ReadChunk {
    let mut bytes = vec![0; chunk.len];
    let mut problems = chunk.problems;
    let mut at = 0;
    for part in &chunk.parts {
        match part {
            ChunkPart::Bytes(range) => {
                bytes[at..at + range.len()].copy_from_slice(&chunk.text[range.clone()]);
                at += range.len();
            }
            ChunkPart::Zeros(len) => at += len,
            ChunkPart::Data { file, path, offset, len } => {
                let target = &mut bytes[at..at + len];
                let what = match volume.read_loaded(file, *offset, target) {
                    Ok(count) if count == *len => None,
                    Ok(_) => Some("unexpected end of file; padding with zeros".to_owned()),
                    Err(error) => Some(format!("{error}; padding with zeros")),
                };
                if let Some(what) = what {
                    target.fill(0);
                    problems.push(Problem { path: path.to_vec(), what, is_loss: true });
                }
                at += len;
            }
        }
    }
    ReadChunk { bytes, members: chunk.members, problems }
}
