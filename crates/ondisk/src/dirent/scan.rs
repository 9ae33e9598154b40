//! Records passed over by their headers alone, on the way to a name or to room for one.

/// Bytes of a record before its name.
pub const HEADER_LEN: usize = 8;
/// More bytes than any record has.
pub(super) const NO_ROOM: usize = usize::MAX / 2;
/// Blocks shorter than this store record lengths as they are.
pub(super) const MAX_PLAIN: usize = 1 << 16;

/// Records that are looked at together.
const TOGETHER: usize = 8;
/// Passes over used records that have not the name, and less than `room` bytes behind theirs; ends
/// at the first other one, or at one that is to be read with care. `from` and the result say where a
/// record starts, and where the one before it does. Records carry the file type and no hashes.
pub(super) fn pass_over(
    block: &[u8],
    from: (usize, usize),
    name: Option<&[u8]>,
    room: usize,
) -> (usize, usize) {
    // Names of one directory often differ at their ends alone; those of less than four bytes are not compared here.
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
        // As one number: inode, length, length of the name, file type.
        let header = u64::from_le_bytes(*header);
        let is_free = header & 0xffff_ffff == 0;
        let rec_len = (header >> 32 & 0xffff) as usize;
        let name_len = (header >> 48 & 0xff) as usize;
        let taken = HEADER_LEN + ((name_len + 3) & !3);
        // A record that is shorter than its name has very much room so.
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

/// Passes over used records that are just as long as one with a name of `len` bytes, four or more, has to be: often all of a
/// directory. Ends at the first one that is another, or that ends as the one that is looked for would, or before.
fn pass_over_like(
    block: &[u8],
    (from, before): (usize, usize),
    len: usize,
    end_of_name: u32,
) -> (usize, usize) {
    let padded = len.next_multiple_of(4);
    let rec_len = HEADER_LEN + padded;
    let end_of_name_at = HEADER_LEN + len - 4;
    // Of the second half of a header: its length, and that of its name with what fills it up. The latter's carry falls away: longer
    // names are read with care.
    let alike = (padded << 16 | rec_len) as u32;
    // Without a branch: several records are looked at together, and none of their places hangs on what another holds.
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
