//! When the producer says that a message came into being.

use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time that `occurred_at` and `sequence(number = …)` take.
///
/// Implemented for [`SystemTime`], [`UnixSeconds`], [`UnixMillis`], references to those, and with the features of the same
/// names for `chrono::DateTime` and `time::OffsetDateTime`.
///
/// Deliberately not implemented for integers, which do not say whether they count seconds or milliseconds, nor for
/// dates without a zone. Give such a field the type [`UnixSeconds`] or [`UnixMillis`], or name a method that returns one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no point in time",
    label = "not a `Timestamp`",
    note = "`SystemTime`, `chrono::DateTime` (feature `chrono`), `time::OffsetDateTime` (feature `time`), `UnixSeconds` and `UnixMillis` are",
    note = "a bare number does not say its unit: make the field `idempotent_runtime::UnixSeconds` or `UnixMillis`, or name a method that returns one, as in `occurred_at = \"event.created_at()\"`"
)]
pub trait Timestamp {
    /// Nanoseconds since 1970-01-01 00:00:00 UTC, negative before.
    fn unix_nanos(&self) -> i128;
}

/// Whole seconds since 1970-01-01 00:00:00 UTC, as Stripe's `created` has them.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "built by hand as `UnixSeconds(1)`")]
pub struct UnixSeconds(pub i64);

/// Milliseconds since 1970-01-01 00:00:00 UTC, as Kafka's record timestamps have them.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "built by hand as `UnixMillis(1)`")]
pub struct UnixMillis(pub i64);

impl Timestamp for UnixSeconds {
    fn unix_nanos(&self) -> i128 {
        i128::from(self.0) * 1_000_000_000
    }
}

impl Timestamp for UnixMillis {
    fn unix_nanos(&self) -> i128 {
        i128::from(self.0) * 1_000_000
    }
}

impl Timestamp for SystemTime {
    fn unix_nanos(&self) -> i128 {
        // A `Duration` is at most 2^64 seconds, so its nanoseconds fit.
        match self.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos().cast_signed(),
            Err(before) => -before.duration().as_nanos().cast_signed(),
        }
    }
}

#[cfg(feature = "chrono")]
impl<Tz: chrono::TimeZone> Timestamp for chrono::DateTime<Tz> {
    fn unix_nanos(&self) -> i128 {
        i128::from(self.timestamp()) * 1_000_000_000 + i128::from(self.timestamp_subsec_nanos())
    }
}

#[cfg(feature = "time")]
impl Timestamp for time::OffsetDateTime {
    fn unix_nanos(&self) -> i128 {
        self.unix_timestamp_nanos()
    }
}

impl<T: Timestamp + ?Sized> Timestamp for &T {
    fn unix_nanos(&self) -> i128 {
        (**self).unix_nanos()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_type_says_the_same_of_one_moment() {
        let nanos = 1_764_493_200_000_000_000;
        assert_eq!(UnixSeconds(1_764_493_200).unix_nanos(), nanos);
        assert_eq!(UnixMillis(1_764_493_200_000).unix_nanos(), nanos);
        assert_eq!((UNIX_EPOCH + Duration::from_hours(490_137)).unix_nanos(), nanos);
        #[cfg(feature = "chrono")]
        assert_eq!(chrono::DateTime::from_timestamp_nanos(1_764_493_200_000_000_000).unix_nanos(), nanos);
        #[cfg(feature = "time")]
        assert_eq!(time::OffsetDateTime::from_unix_timestamp(1_764_493_200).unwrap().unix_nanos(), nanos);
    }

    #[test]
    fn extremes_neither_overflow_nor_lose_their_sign() {
        assert_eq!(UnixSeconds(i64::MIN).unix_nanos(), i128::from(i64::MIN) * 1_000_000_000);
        assert_eq!((UNIX_EPOCH - Duration::from_nanos(1)).unix_nanos(), -1);
        #[cfg(feature = "chrono")]
        assert_eq!(chrono::DateTime::from_timestamp(-1, 999_999_999).unwrap().unix_nanos(), -1);
    }
}
