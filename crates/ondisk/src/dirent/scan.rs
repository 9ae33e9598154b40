//! Skips entries by their headers only, in searches for a name or for free space.

/// Length in bytes of an entry before its name.
pub const HEADER_LEN: usize = 8;
/// More bytes than any entry has.
pub(super) const NO_ROOM: usize = usize::MAX / 2;
/// Block size in bytes below which record lengths are stored without encoding.
pub(super) const MAX_PLAIN: usize = 1 << 16;

/// Number of entries examined together.
const TOGETHER: usize = 8;
/// Skips used entries with another name and with less than `room` bytes after theirs. Ends at the
/// first entry that is different or needs a full check. `from` and the result are the positions of
/// an entry and of the previous one. Entries must have the file type and no hashes.
pub(super) fn pass_over(
    block: &[u8],
    from: (usize, usize),
    name: Option<&[u8]>,
    room: usize,
) -> (usize, usize) {
    // Names in a directory often differ only at their ends; shorter ones than four bytes are not
    // compared here.
    let (len, end_of_name) = match name {
        Some(name) => (name.len(), name.last_chunk::<4>().copied().map(u32::from_le_bytes)),
        None => (usize::MAX, None),
    };
    let (mut at, mut before) = from;
    loop {
        if let (Some(name), Some(end_of_name)) = (name, end_of_name) {
            (at, before) = pass_over_like(block, (at, before), name.len(), end_of_name);
        }
        let Some(rest) = block.get(at..) else { break };
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else { break };
        // As a single number: inode, length, length of the name, file type.
        let header = u64::from_le_bytes(*header);
        let is_free = header & 0xffff_ffff == 0;
        let rec_len = (header >> 32 & 0xffff) as usize;
        let name_len = (header >> 48 & 0xff) as usize;
        let taken = HEADER_LEN + ((name_len + 3) & !3);
        // An entry shorter than its name wraps to a very large room.
        let is_of_interest = rec_len.wrapping_sub(taken) >= room
            || is_free
            || name_len == 0
            || !rec_len.is_multiple_of(4)
            || rec_len > rest.len();
        if is_of_interest {
            break;
        }
        if name_len == len {
            let found = rest[..HEADER_LEN + len].last_chunk::<4>().copied().map(u32::from_le_bytes);
            if len < 4 || found == end_of_name {
                break;
            }
        }
        before = at;
        at += rec_len;
    }
    (at, before)
}

/// Skips used entries whose length is the minimum for a name of `len` bytes, four or more: often
/// all of a directory. Ends at the first entry of another length, or with the same end as the name
/// searched for, or earlier.
fn pass_over_like(
    block: &[u8],
    (from, before): (usize, usize),
    len: usize,
    end_of_name: u32,
) -> (usize, usize) {
    let padded = len.next_multiple_of(4);
    let rec_len = HEADER_LEN + padded;
    let end_of_name_at = HEADER_LEN + len - 4;
    // The second half of a header: the entry's length, and that of its name with padding. The carry
    // of the latter is dropped: longer names get a full check.
    let alike = (padded << 16 | rec_len) as u32;
    // Without a branch: several entries are examined together, and the position of none depends on
    // the content of another.
    let is_passed = |record: &[u8]| {
        let (Some(header), Some(end)) = (
            record.first_chunk::<HEADER_LEN>(),
            record.get(end_of_name_at..).and_then(|end| end.first_chunk::<4>()),
        ) else {
            return false;
        };
        let header = u64::from_le_bytes(*header);
        let lengths = ((header >> 32) as u32).wrapping_add(3 << 16) & 0x00fc_ffff;
        let is_other = u32::from_le_bytes(*end) != end_of_name;
        (lengths == alike) & (header as u32 != 0) & is_other
    };
    let Some(rest) = block.get(from..) else { return (from, before) };
    let mut passed = 0;
    for records in rest.chunks_exact(TOGETHER * rec_len) {
        let all = records.chunks_exact(rec_len).fold(true, |all, record| all & is_passed(record));
        if !all {
            break;
        }
        passed += TOGETHER;
    }
    let left = rest[passed * rec_len..].chunks_exact(rec_len).take(TOGETHER);
    passed += left.take_while(|record| is_passed(record)).count();
    let at = from + passed * rec_len;
    (at, if passed > 0 { at - rec_len } else { before })
}
