//! Values that are kept with the claim, so that a duplicate gets the first answer again.

use std::fmt;

use crate::Error;

/// What a handler with `replay` returns: stored as JSON with its claim, and read again for a duplicate.
///
/// Implemented for every type that is `serde::Serialize` and `serde::de::DeserializeOwned`, with the feature `replay`. A
/// value is read back before it is committed, so that what JSON cannot hold (`NaN`, more than 128 levels) is
/// [`ReplayError::NotSerializable`], and not an error of every duplicate. What JSON cannot tell apart comes back as the same:
/// `Some(())`, like `Some(None)`, as `None`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored and replayed",
    label = "the value that a handler with `replay` returns",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it, without borrowed fields, and enable the feature `replay` of `idempotent-runtime`",
    note = "or remove `replay`: a duplicate then gives `Outcome::Duplicate` without a value"
)]
pub trait ReplayValue: Sized {
    #[doc(hidden)]
    fn to_stored(&self, limit: usize) -> Result<String, ReplayError>;

    #[doc(hidden)]
    fn from_stored(stored: &str) -> Result<Self, ReplayError>;
}

#[cfg(feature = "replay")]
#[diagnostic::do_not_recommend]
impl<T: serde::Serialize + serde::de::DeserializeOwned> ReplayValue for T {
    fn to_stored(&self, limit: usize) -> Result<String, ReplayError> {
        let mut stored = Limited { json: Vec::new(), bytes: 0, limit };
        let written = serde_json::to_writer(&mut stored, self);
        if stored.bytes > limit {
            return Err(ReplayError::TooLarge { bytes: stored.bytes, limit });
        }
        written.map_err(|_| ReplayError::NotSerializable)?;
        let stored = String::from_utf8(stored.json).map_err(|_| ReplayError::NotSerializable)?;
        // Once it is committed, it would fail each duplicate.
        match Self::from_stored(&stored) {
            Ok(_) => Ok(stored),
            Err(_) => Err(ReplayError::NotSerializable),
        }
    }

    fn from_stored(stored: &str) -> Result<Self, ReplayError> {
        // serde's text may repeat what it has read, which is nobody's business but the caller's.
        serde_json::from_str(stored)
            .map_err(|error| ReplayError::Unreadable { line: error.line(), column: error.column() })
    }
}

/// Counts all that is written, and keeps no more of it than may be stored.
#[cfg(feature = "replay")]
struct Limited {
    json: Vec<u8>,
    bytes: usize,
    limit: usize,
}

#[cfg(feature = "replay")]
impl std::io::Write for Limited {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.bytes += text.len();
        if self.bytes <= self.limit {
            self.json.extend_from_slice(text);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How a handler's values are stored and read.
#[derive(Debug)]
pub struct Replay<T> {
    pub(crate) to_stored: fn(&T, usize) -> Result<String, ReplayError>,
    pub(crate) from_stored: fn(&str) -> Result<T, ReplayError>,
}

impl<T: ReplayValue> Replay<T> {
    /// As JSON.
    #[must_use]
    pub fn json() -> Self {
        Self { to_stored: T::to_stored, from_stored: T::from_stored }
    }
}

impl<T> Clone for Replay<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Replay<T> {}

/// Why a value could not be stored, or not be read again. Holds nothing of the value itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The value is too large as JSON. The transaction was rolled back: neither claim nor effect was kept, and a
    /// redelivery would fail again.
    #[error(
        "the value to be replayed is {bytes} bytes of JSON, and at most {limit} are stored; return less, or raise \
         `ClaimStore::builder(pool).max_stored_value(bytes)`"
    )]
    #[non_exhaustive]
    TooLarge {
        /// The length of the value as JSON, in bytes.
        bytes: usize,
        /// The longest that is stored, in bytes: 1 MiB, unless
        /// [`max_stored_value`](crate::ClaimStoreBuilder::max_stored_value) says otherwise.
        limit: usize,
    },

    /// The value has no JSON form that can be read again, such as `NaN`, or a map whose keys are lists. The transaction was
    /// rolled back: neither claim nor effect was kept, and a redelivery would fail again.
    #[error(
        "the value to be replayed has no JSON form that can be read again: a map's keys must be text or integers, a float \
         finite, and its `Deserialize` must read what its `Serialize` writes"
    )]
    NotSerializable,

    /// What an earlier version stored cannot be read as the handler's value. The work was done then, and is not done again:
    /// repair the type, and the next delivery gets its answer.
    #[error(
        "the stored value cannot be read as what the handler returns now (JSON line {line}, column {column}): keep reading what earlier \
         versions stored (`#[serde(default)]`, `#[serde(alias)]`), or `forget` the claim if the work may run again"
    )]
    #[non_exhaustive]
    Unreadable {
        /// The line of the stored JSON where reading failed, from 1.
        line: usize,
        /// The column there, in bytes.
        column: usize,
    },
}

impl From<ReplayError> for Error {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}

/// The first answer, as it was stored. What it holds is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredValue(pub(crate) String);

impl fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredValue({} bytes)", self.0.len())
    }
}

#[cfg(all(test, feature = "replay"))]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;

    type Value = BTreeMap<String, Vec<(Option<String>, i64, bool, char)>>;

    fn value() -> impl Strategy<Value = Value> {
        let entry = (prop::option::of(".{0,6}"), any::<i64>(), any::<bool>(), any::<char>());
        prop::collection::btree_map(".{0,6}", prop::collection::vec(entry, 0..3), 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::test_cases(2_000, 1_000_000)))]

        #[test]
        fn any_value_comes_back_as_it_was_and_the_limit_is_exact(value in value()) {
            let stored = value.to_stored(usize::MAX).unwrap();
            prop_assert_eq!(value.to_stored(stored.len()), Ok(stored.clone()));
            let (bytes, limit) = (stored.len(), stored.len() - 1);
            prop_assert_eq!(value.to_stored(limit), Err(ReplayError::TooLarge { bytes, limit }));
            prop_assert_eq!(Value::from_stored(&stored), Ok(value));
        }

        #[test]
        fn a_damaged_value_is_a_value_or_a_typed_error(
            value in value(),
            damage in prop::sample::select(vec!["[", "]", "{", "}", "\"", ",", ":", "0", "-1e999", "\\", "\\u", "\u{0}", "é", "null"]),
            at in any::<prop::sample::Index>(),
            cut in any::<bool>(),
        ) {
            let mut stored = value.to_stored(usize::MAX).unwrap();
            let places: Vec<usize> = stored.char_indices().map(|(at, _)| at).collect();
            let at = places[at.index(places.len())];
            if cut {
                stored.truncate(at);
            }
            stored.insert_str(at, damage);
            let read = Value::from_stored(&stored);
            prop_assert!(matches!(read, Ok(_) | Err(ReplayError::Unreadable { .. })), "{read:?}");
        }
    }

    #[test]
    fn a_value_comes_back_as_it_was() {
        let value = vec![Some("ä\0\u{1F600}".to_owned()), None];
        let stored = value.to_stored(100).unwrap();
        assert_eq!(Vec::<Option<String>>::from_stored(&stored), Ok(value));
    }

    #[test]
    fn floats_come_back_to_the_last_bit() {
        let (mut bits, mut finite) = (1_u64, 0);
        while finite < 100_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1); // covers every exponent
            let float = f64::from_bits(bits);
            if float.is_finite() {
                let stored = float.to_stored(100).unwrap();
                assert_eq!(f64::from_stored(&stored).unwrap().to_bits(), bits, "{stored}");
                finite += 1;
            }
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_refused() {
        let refused = Err(ReplayError::NotSerializable);
        assert_eq!(vec![1.0, f64::NAN].to_stored(100), refused);
        assert_eq!(f32::INFINITY.to_stored(100), refused);
        let mut deep = serde_json::Value::Null;
        for _ in 0..200 {
            deep = serde_json::Value::Array(vec![deep]);
        }
        assert_eq!(deep.to_stored(1000), refused);
        let by_number = HashMap::from([(-7, u128::MAX)]);
        assert_eq!(HashMap::from_stored(&by_number.to_stored(100).unwrap()), Ok(by_number));
    }

    #[test]
    fn the_limit_is_exact_and_names_the_length() {
        assert!("12345678".to_owned().to_stored(10).is_ok());
        let too_large = "123456789".to_owned().to_stored(10);
        assert_eq!(too_large, Err(ReplayError::TooLarge { bytes: 11, limit: 10 }));
    }

    #[test]
    fn errors_hold_nothing_of_the_value() {
        let keys_are_lists = HashMap::from([(vec!["secret".to_owned()], 1)]);
        assert_eq!(keys_are_lists.to_stored(100), Err(ReplayError::NotSerializable));
        let unreadable = u64::from_stored("\"secret\"").unwrap_err();
        assert!(!format!("{unreadable} {unreadable:?} {:?}", StoredValue("secret".into())).contains("secret"));
    }
}
