//! The row that says: this message is being processed, and once committed, has been.

use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};

use crate::outcome::{Duplicate, Identity};

/// The claim of the running handler: which message it works on.
///
/// A handler with a parameter `claim: &Claim` is given it; the caller does not pass it.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim(pub(crate) Identity);

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug(f, "Claim")
    }
}

impl Claim {
    /// The consumer whose claim this is.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.0.consumer
    }

    /// The stored form of the sender; empty where the handler names none.
    #[must_use]
    pub fn sender(&self) -> &str {
        &self.0.sender
    }

    /// The stored form of the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// A UUID that is the same on every redelivery of this message, and another for each label.
    ///
    /// Give it to a system outside the transaction (a payment provider's `Idempotency-Key`, a mail's
    /// message id): the body may run again after a crash, and the other side then recognises the call.
    ///
    /// It is a version 8 UUID ([RFC 9562, section 5.8]) made of the first 122 free bits of SHA-256 over
    /// consumer, sender, key and label, each preceded by its length.
    ///
    /// [RFC 9562, section 5.8]: https://www.rfc-editor.org/rfc/rfc9562#section-5.8
    #[must_use]
    pub fn idempotency_key(&self, label: &str) -> String {
        let mut hash = Sha256::new();
        for part in [&*self.0.consumer, &*self.0.sender, &*self.0.key, label] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        let mut uuid = String::with_capacity(36);
        for (index, &byte) in digest[..16].iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                uuid.push('-');
            }
            let byte = match index {
                6 => byte & 0x0F | 0x80, // version 8
                8 => byte & 0x3F | 0x80, // variant 10
                _ => byte,
            };
            let _ = write!(uuid, "{byte:02x}");
        }
        uuid
    }
}

/// What [`ClaimStore::claim`](crate::ClaimStore::claim) found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Nobody had claimed the message: do the work in this transaction, and commit it.
    New(Claim),
    /// The work is done: roll back or commit, and acknowledge.
    Duplicate(Duplicate),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(consumer: &'static str, sender: &'static str, key: &'static str) -> Claim {
        Claim(Identity { consumer: consumer.into(), sender: sender.into(), key: key.into() })
    }

    #[test]
    fn an_idempotency_key_is_a_version_8_uuid_that_never_changes() {
        let uuid = claim("billing.grant-credit", "stripe", "evt_001").idempotency_key("charge");
        // Changing this value would make every provider see a new request after an upgrade.
        assert_eq!(uuid, "c096e57f-3451-80bd-a7a7-79f9730e712d");
    }

    #[test]
    fn idempotency_keys_differ_by_every_part_and_by_where_it_ends() {
        let keys = [
            claim("a", "b", "c").idempotency_key("d"),
            claim("ab", "", "c").idempotency_key("d"),
            claim("a", "bc", "").idempotency_key("d"),
            claim("a", "b", "cd").idempotency_key(""),
            claim("a", "b", "c").idempotency_key("e"),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
