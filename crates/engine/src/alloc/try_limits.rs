//! Number of groups that a search tries for each order, adapted to its success.

use extant_runtime::sync::atomic::{AtomicU8, Ordering};

/// Orders that a group may have: the largest block has 2^19 bits.
const ORDERS: usize = 20;
/// The limit of an order while its searches succeed.
const MOST_TRIES: u8 = 8;

/// The limits, one for each order. A limit is halved after each search that fails, down to 1.
#[derive(Debug)]
pub(super) struct TryLimits([AtomicU8; ORDERS]);

impl TryLimits {
    /// The highest limit for every order.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU8::new(MOST_TRIES)))
    }

    fn limit(&self, order: u32) -> &AtomicU8 {
        &self.0[(order as usize).min(ORDERS - 1)]
    }

    /// Number of groups to try for an order.
    pub(super) fn get(&self, order: u32) -> u8 {
        self.limit(order).load(Ordering::Relaxed)
    }

    /// Restores the limit of an order after a search that succeeded under the limit `tries`.
    pub(super) fn restore(&self, order: u32, tries: u8) {
        if tries < MOST_TRIES {
            self.limit(order).store(MOST_TRIES, Ordering::Relaxed);
        }
    }

    /// Halves the limit of an order after a search that failed under the limit `tries`.
    pub(super) fn halve(&self, order: u32, tries: u8) {
        self.limit(order).store((tries / 2).max(1), Ordering::Relaxed);
    }
}
