//! Recovery against e2fsck: the same journal replayed by both leaves the same bytes.

mod any_bytes;
mod compare;
mod corpus;
mod discarded;
mod fast_commit;
mod fast_commit_cuts;
mod hostile;
mod kernel;
