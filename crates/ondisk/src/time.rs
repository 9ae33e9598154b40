//! Times with nanoseconds, from 1901 to 2446.
