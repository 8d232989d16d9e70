//! The order of messages: how far an entity, or a stream, has come.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use crate::{Timestamp, UnixMillis, UnixSeconds};

/// A version, an offset or a timestamp that `sequence(number = …)` takes: a message runs only if its number is above the
/// one that was applied last.
///
/// Implemented for every integer type, for what is a [`Timestamp`] in this crate, and for references to those.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say which of two messages is the newer one",
    label = "not a `SequenceNumber`",
    note = "integers and timestamps (`SystemTime`, `chrono::DateTime`, `time::OffsetDateTime`, `UnixSeconds`, `UnixMillis`) can",
    note = "an `Option` cannot: a message without its number cannot be put in order"
)]
pub trait SequenceNumber {
    /// The number as it is stored: an integer as it is, a timestamp in nanoseconds since 1970 UTC. `None` where it does not
    /// fit 64 bits (a timestamp outside the years 1677 to 2262).
    fn sequence_number(&self) -> Option<i64>;
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl SequenceNumber for $ty {
            fn sequence_number(&self) -> Option<i64> {
                i64::try_from(*self).ok()
            }
        }
    )*};
}

macro_rules! timestamps {
    ($($(#[$cfg:meta])? [$($generics:tt)*] $ty:ty),* $(,)?) => {$(
        $(#[$cfg])?
        impl $($generics)* SequenceNumber for $ty {
            fn sequence_number(&self) -> Option<i64> {
                i64::try_from(self.unix_nanos()).ok()
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);
timestamps! {
    [] SystemTime,
    [] UnixSeconds,
    [] UnixMillis,
    #[cfg(feature = "chrono")] [<Tz: chrono::TimeZone>] chrono::DateTime<Tz>,
    #[cfg(feature = "time")] [] time::OffsetDateTime,
}

impl<T: SequenceNumber + ?Sized> SequenceNumber for &T {
    fn sequence_number(&self) -> Option<i64> {
        (**self).sequence_number()
    }
}

/// A message that is not newer than what was applied last.
#[derive(Clone, PartialEq, Eq)]
pub struct Stale(pub(crate) Position);

impl Stale {
    /// The consumer that has applied a newer message, or this very one.
    #[must_use]
    pub fn consumer(&self) -> &str {
        self.0.consumer
    }

    /// The stored form of the sender; empty where the handler names none.
    #[must_use]
    pub fn sender(&self) -> &str {
        &self.0.sender
    }

    /// The stored form of the entity: whose order it is.
    #[must_use]
    pub fn entity(&self) -> &str {
        &self.0.entity
    }

    /// The number of this message. [`ClaimStore::position`](crate::ClaimStore::position) tells the one that was applied last.
    #[must_use]
    pub const fn number(&self) -> i64 {
        self.0.number
    }
}

impl fmt::Debug for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { consumer, sender, entity, number } = &self.0;
        f.debug_struct("Stale")
            .field("consumer", consumer)
            .field("sender", sender)
            .field("entity", entity)
            .field("number", number)
            .finish()
    }
}

/// Where a message stands in the order of its entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) consumer: &'static str,
    pub(crate) sender: Cow<'static, str>,
    pub(crate) entity: Cow<'static, str>,
    pub(crate) number: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, sender, entity, number } = self;
        write!(f, "number {number} of `{entity}`")?;
        if !sender.is_empty() {
            write!(f, " from sender `{sender}`")?;
        }
        write!(f, " of consumer `{consumer}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_never_wrapped() {
        assert_eq!(u64::MAX.sequence_number(), None);
        assert_eq!((i64::MAX as u64).sequence_number(), Some(i64::MAX));
        assert_eq!(i128::from(i64::MIN).sequence_number(), Some(i64::MIN));
        assert_eq!(UnixSeconds(i64::MAX).sequence_number(), None);
        assert_eq!(UnixSeconds(1).sequence_number(), Some(1_000_000_000));
    }
}
