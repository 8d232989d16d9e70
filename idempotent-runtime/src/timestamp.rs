//! When the producer says that a message came into being.

use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time that `occurred_at` and `sequence(number = …)` take.
///
/// Implemented for [`SystemTime`], [`UnixSeconds`], [`UnixMillis`], references to those, and with the features of the same
/// names for `chrono::DateTime` and `time::OffsetDateTime`.
///
/// Deliberately not implemented for integers, which do not say whether they count seconds or milliseconds, nor for
/// dates without a zone, nor for `Option`: a message without its timestamp cannot be dated. Give such a field the type
/// [`UnixSeconds`] or [`UnixMillis`], name a method that returns one, or take it as a parameter of its own.
///
/// Times are compared to the microsecond on PostgreSQL and MariaDB/MySQL, and to the millisecond on SQLite.
///
/// # Example
///
/// ```
/// use idempotent_runtime::{Timestamp as _, UnixMillis, UnixSeconds};
///
/// /// A type of somebody else's, with a bare number of seconds.
/// struct Event { created: i64 }
///
/// impl Event {
///     /// For `occurred_at = "event.created_at()"`.
///     fn created_at(&self) -> UnixSeconds {
///         UnixSeconds(self.created)
///     }
/// }
///
/// let event = Event { created: 1_764_493_200 };
/// assert_eq!(event.created_at().unix_nanos(), UnixMillis(1_764_493_200_000).unix_nanos());
/// ```
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

/// Whole seconds since 1970-01-01 00:00:00 UTC, as [Stripe's `created`] and the `iat` of a JWT have them.
///
/// With the feature `serde` it is read from, and written as, the bare number. Seconds in a field of [`UnixMillis`] would make
/// every message [`Expired`](crate::Error::Expired); milliseconds in a field of this type are
/// [`OccurredInFuture`](crate::Error::OccurredInFuture).
///
/// ```
/// # #[cfg(feature = "replay")] {
/// use idempotent_runtime::UnixSeconds;
///
/// #[derive(serde::Deserialize)]
/// struct Event {
///     id: String,
///     created: UnixSeconds, // for `occurred_at = "event.created"`
/// }
///
/// let event: Event = serde_json::from_str(r#"{"id": "evt_1", "created": 1764493200}"#).unwrap();
/// assert_eq!(event.created, UnixSeconds(1_764_493_200));
/// # }
/// ```
///
/// [Stripe's `created`]: https://docs.stripe.com/api/events/object#event_object-created
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "built by hand as `UnixSeconds(1)`")]
pub struct UnixSeconds(pub i64);

/// Milliseconds since 1970-01-01 00:00:00 UTC, as [Kafka's record timestamps] and JavaScript's `Date.now()` have them.
///
/// With the feature `serde` it is read from, and written as, the bare number. Of a Kafka topic that is configured to use
/// `LogAppendTime` the timestamp is the broker's, and another one if the producer sends the message again.
///
/// [Kafka's record timestamps]: https://kafka.apache.org/30/javadoc/org/apache/kafka/clients/producer/ProducerRecord.html
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
