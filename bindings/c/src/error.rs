//! Failures as numbers, with their texts.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use extant::rooms::runtime::handles::HandleError;

/// A failed call: the number that it returns, and the text.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

impl From<extant::Error> for Failure {
    fn from(error: extant::Error) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

macro_rules! through_error {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                extant::Error::from(error).into()
            }
        }
    )*};
}

through_error!(
    extant::Cause,
    extant::PathError,
    extant::OpenError,
    extant::UrlError,
    extant::FinishError,
    extant::DeviceError,
    extant::MkfsError,
    extant::RunError
);

impl From<HandleError> for Failure {
    fn from(error: HandleError) -> Self {
        let errno = match error {
            HandleError::Closed => libc::EBADF,
            HandleError::Busy => libc::EBUSY,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    /// Reading, writing and seeking by the traits of `std::io` wrap a path's error.
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<extant::PathError>() {
            Ok(error) => error.into(),
            Err(error) => extant::Error::from(error).into(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the last call that failed in this thread; empty before the first. It is valid until
/// the next call that fails in this thread, or the thread's end.
#[allow(unsafe_code)] // an exported name: no other symbol has it
#[unsafe(no_mangle)]
pub extern "C" fn extant_last_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Runs the body of an exported call. A panic is an error of this library: it ends the call and
/// not the program.
pub(crate) fn call<T: From<i8> + TryFrom<i64>>(body: impl FnOnce() -> Result<T, Failure>) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(libc::EIO, "internal error of libextant"),
    };
    let text = CString::new(failure.text.replace('\0', "\u{fffd}")).unwrap_or_default();
    LAST.set(text);
    T::try_from(-i64::from(failure.errno)).unwrap_or_else(|_| T::from(-1))
}
