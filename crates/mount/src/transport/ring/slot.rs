//! Memory for a request and its reply in a ring.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::slice;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use zerocopy::{FromBytes, IntoBytes};

use super::super::abi::{InHeader, OutHeader, UringHeader};
use super::super::message::Request;
use crate::mountpoint::MAX_REQUEST;

const PAGE: usize = 4096;
/// The payload starts at a page, which is moved as such.
const PAYLOAD: usize = MAX_REQUEST as usize;
/// After the header, in its page: the addresses of header and payload for the kernel.
const PARTS_AT: usize = 1024;

/// Memory for one request and its reply: a page for the header, then the payload.
///
/// The owner of the value has exclusive access to the memory, except while a command has given it
/// to the kernel: then no thread accesses it until the command is completed.
#[derive(Debug)]
pub(super) struct Slot(NonNull<u8>);

// SAFETY: a slot is the only way to its memory, as a Box is.
#[allow(unsafe_code)]
unsafe impl Send for Slot {}

impl Slot {
    /// Fresh memory, which stays for as long as the process does: the kernel may write there until
    /// the mount is gone.
    #[allow(unsafe_code)]
    pub(super) fn new() -> rustix::io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let at =
            unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE + PAYLOAD, protection, flags)? };
        let slot = Self(NonNull::new(at.cast()).ok_or(Errno::NOMEM)?);
        let parts = [slot.address(0), size_of::<UringHeader>(), slot.address(PAGE), PAYLOAD];
        let mut slot = slot;
        slot.bytes_mut()[PARTS_AT..][..size_of_val(&parts)].copy_from_slice(parts.as_bytes());
        Ok(slot)
    }

    fn address(&self, offset: usize) -> usize {
        self.0.as_ptr().addr() + offset
    }

    /// Where two `struct iovec` lie, of the header and of the payload.
    pub(super) fn parts(&self) -> *const c_void {
        self.0.as_ptr().wrapping_add(PARTS_AT).cast_const().cast()
    }

    #[allow(unsafe_code)]
    fn bytes(&self) -> &[u8] {
        // SAFETY: that many bytes were mapped, zeroed, and are never unmapped; this value is the
        // only way to them, and is held.
        unsafe { slice::from_raw_parts(self.0.as_ptr(), PAGE + PAYLOAD) }
    }

    #[allow(unsafe_code)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and it is held alone.
        unsafe { slice::from_raw_parts_mut(self.0.as_ptr(), PAGE + PAYLOAD) }
    }

    fn header(&self) -> UringHeader {
        UringHeader::read_from_prefix(self.bytes()).expect("a page holds a header").0
    }

    /// The identifier of the request here for its reply.
    pub(super) fn commit_id(&self) -> u64 {
        self.header().commit_id
    }

    fn in_header(&self) -> InHeader {
        InHeader::read_from_prefix(self.bytes()).expect("a page holds a header").0
    }

    fn payload_size(&self) -> usize {
        (self.header().payload_size as usize).min(PAYLOAD)
    }

    /// The request that the kernel put here.
    pub(super) fn request(&self) -> Request<'_> {
        let first = &self.bytes()[size_of_first()];
        Request::split(self.in_header(), first, &self.bytes()[PAGE..][..self.payload_size()])
    }

    /// For requests of which only the header and the first argument are needed: these, and the
    /// payload for the reply.
    pub(super) fn take_apart(&mut self) -> Option<(InHeader, [u8; 128], &mut [u8])> {
        if self.payload_size() > 0 {
            return None;
        }
        let (header, first) = (self.in_header(), self.header().first);
        Some((header, first, &mut self.bytes_mut()[PAGE..]))
    }

    /// Copies a reply's payload here.
    pub(super) fn fill(&mut self, content: &[u8]) {
        self.bytes_mut()[PAGE..][..content.len()].copy_from_slice(content);
    }

    /// Turns the slot into the reply: `len` bytes of payload, or an error.
    pub(super) fn finish(&mut self, outcome: Result<(), Errno>, len: usize) {
        let len = outcome.map_or(0, |()| len);
        let unique = self.in_header().unique;
        // Payloads have at most MAX_REQUEST bytes.
        let out = OutHeader::new(unique, outcome, (size_of::<OutHeader>() + len) as u32);
        let mut header = self.header();
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        header.payload_size = len as u32;
        self.bytes_mut()[..size_of::<UringHeader>()].copy_from_slice(header.as_bytes());
    }
}

/// Where the first argument lies.
fn size_of_first() -> std::ops::Range<usize> {
    let at = std::mem::offset_of!(UringHeader, first);
    at..at + super::super::abi::URING_PART
}
