//! Features of a journal.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::features::features;

features! {
    /// `s_feature_compat` of the journal.
    JournalCompat, "C" {
        /// Commit blocks carry a checksum of the transaction (checksum v1).
        CHECKSUM = 0x1, "journal_checksum";
    }
}

features! {
    /// `s_feature_incompat` of the journal.
    JournalIncompat, "I" {
        /// Has revoke records.
        REVOKE = 0x1, "journal_incompat_revoke";
        /// Block numbers of 64 bits.
        BIT64 = 0x2, "journal_64bit";
        /// The commit block is written together with the transaction, without a flush between them.
        ASYNC_COMMIT = 0x4, "journal_async_commit";
        /// Checksums in every block and tag; tags have 16 bits.
        CSUM_V2 = 0x8, "journal_checksum_v2";
        /// As [`Self::CSUM_V2`], with 32 bits in tags of a fixed size.
        CSUM_V3 = 0x10, "journal_checksum_v3";
        /// Has a fast-commit area.
        FAST_COMMIT = 0x20, "fast_commit";
    }
}

features! {
    /// `s_feature_ro_compat` of the journal. None is known.
    JournalRoCompat, "R" {}
}

impl JournalIncompat {
    /// The supported features.
    pub const READABLE: Self = Self::REVOKE
        .union(Self::BIT64)
        .union(Self::ASYNC_COMMIT)
        .union(Self::CSUM_V2)
        .union(Self::CSUM_V3)
        .union(Self::FAST_COMMIT);
}
