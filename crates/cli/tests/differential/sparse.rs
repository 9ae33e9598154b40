//! Images in memory, without their zeros.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};

const UNIT: usize = 4096;
const ZEROS: [u8; UNIT] = [0; UNIT];

/// An image as the runs of it that are not zero: to copy and to compare it takes as long as it has
/// data.
#[derive(Eq, PartialEq)]
pub(crate) struct Sparse {
    length: u64,
    /// Offset and bytes, in order. No two runs touch, so that equal images have equal runs.
    runs: Vec<(u64, Vec<u8>)>,
}

impl Sparse {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut sparse = Self { length: bytes.len() as u64, runs: Vec::new() };
        sparse.add(0, bytes);
        sparse
    }

    pub(crate) fn read(image: &Path) -> Self {
        let file = File::open(image).expect("it is there");
        let length = file.metadata().expect("it is there").len();
        let mut sparse = Self { length, runs: Vec::new() };
        let mut end = 0;
        while let Ok(start) = seek(&file, SeekFrom::Data(end)) {
            end = seek(&file, SeekFrom::Hole(start)).expect("a file ends with a hole");
            let mut bytes = vec![0; (end - start) as usize];
            file.read_exact_at(&mut bytes, start).expect("reads");
            sparse.add(start, &bytes);
        }
        sparse
    }

    fn add(&mut self, start: u64, bytes: &[u8]) {
        for (at, unit) in bytes.chunks(UNIT).enumerate() {
            if *unit == ZEROS[..unit.len()] {
                continue;
            }
            let offset = start + (at * UNIT) as u64;
            match self.runs.last_mut() {
                Some((from, run)) if *from + run.len() as u64 == offset => run.extend(unit),
                _ => self.runs.push((offset, unit.to_vec())),
            }
        }
    }

    /// Creates the file, with zeros as holes.
    pub(crate) fn write(&self, image: &Path) {
        let file = File::create(image).expect("there is room");
        file.set_len(self.length).expect("there is room");
        for (offset, run) in &self.runs {
            file.write_all_at(run, *offset).expect("there is room");
        }
    }
}
