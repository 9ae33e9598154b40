//! Scan of the fast-commit area for complete fast commits.

use extant_ondisk::Tid;
use extant_ondisk::jbd2::{
    FastCommitChecksum, FastCommitRecord, FastCommitRecords, JournalSuperblock,
};

use crate::log::LogReader;
use crate::{JournalError, Log};

/// The blocks of complete fast commits.
#[derive(Debug)]
pub(crate) struct FastCommits {
    bytes: Vec<u8>,
    block_len: usize,
    /// Number of fast commits.
    pub(crate) commits: u32,
}

impl FastCommits {
    /// Their records, in log order.
    pub(super) fn records(&self) -> impl Iterator<Item = FastCommitRecord<'_>> {
        // The scan read them without a flaw.
        self.bytes
            .chunks(self.block_len.max(1))
            .flat_map(|block| FastCommitRecords::new(block).map_while(Result::ok))
            .map(|(_, _, record)| record)
    }
}

/// Reads the area up to the first invalid record, a tail with a wrong checksum, or a record of
/// another transaction. `running` is the transaction after the last full commit: earlier ones are
/// in the log.
pub(crate) fn scan(
    log: &Log<'_>,
    superblock: &JournalSuperblock,
    running: Tid,
) -> Result<FastCommits, JournalError> {
    let area = superblock.fast_commit_area();
    let mut reader = LogReader::new(*log, area.end);
    let block_len = superblock.block_size as usize;
    let mut found = FastCommits { bytes: Vec::new(), block_len, commits: 0 };
    let mut open = Vec::new();
    let mut checksum = FastCommitChecksum::new();
    for at in area {
        let block = reader.block(at)?;
        let mut is_whole = false;
        for record in FastCommitRecords::new(block) {
            let Ok((_, bytes, record)) = record else { return Ok(found) };
            checksum.record(bytes, &record);
            match record {
                FastCommitRecord::Head(features, tid) if features != 0 || tid != running => {
                    return Ok(found);
                }
                FastCommitRecord::Tail(tid, stored) => {
                    if tid != running || stored != checksum.value() {
                        return Ok(found);
                    }
                    is_whole = true;
                }
                _ => {}
            }
            if is_whole {
                break;
            }
        }
        open.extend_from_slice(block);
        if is_whole {
            found.bytes.append(&mut open);
            found.commits += 1;
            checksum = FastCommitChecksum::new();
        }
    }
    Ok(found)
}
