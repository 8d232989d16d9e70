//! What one delivery led to.

use std::borrow::Cow;
use std::fmt;

use crate::Stale;

/// What one delivery led to. Every variant means: acknowledge the message.
///
/// Not `#[must_use]`: `handler(&pool, &event).await?;` is complete. A handler without `replay`, `sequence` and
/// `expired = "skip"` gives the first and the third variant alone. What is decided first is [in one table](crate#what-is-decided-first).
///
/// ```
/// use idempotent_runtime::Outcome;
///
/// fn story(outcome: Outcome<i64>) -> String {
///     match outcome {
///         Outcome::Processed(balance) => format!("the balance is {balance} now"),
///         Outcome::Replayed(balance) => format!("the balance was {balance} then"),
///         Outcome::Duplicate(message) => format!("{message} was processed before"),
///         Outcome::Stale(update) => format!("`{}` is beyond {}", update.entity(), update.number()),
///         Outcome::Expired(message) => format!("{message} is too old to tell"),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever answers a request has to have an answer for every case")]
pub enum Outcome<T> {
    /// The body ran, its transaction was alive when it returned, and claim and effect are committed
    /// (of a joined handler: they hold once the caller commits).
    Processed(T),
    /// An earlier delivery of the same message did the work, and this is what it returned. Of a handler with
    /// [`replay`](crate#the-first-answer-again).
    Replayed(T),
    /// An earlier delivery of the same message did the work. From a handler with `replay` only where that delivery came
    /// before the handler had `replay`, so that there is no value.
    Duplicate(Duplicate),
    /// A newer message of the same entity, or this very one, had been applied before. Of a handler with
    /// [`sequence`](crate#order).
    Stale(Stale),
    /// The message was older than the retention, so nobody could tell whether it had been processed. Of a handler with
    /// [`occurred_at`](crate#late-redeliveries) and `expired = "skip"`.
    Expired(Expired),
}

impl<T> Outcome<T> {
    /// Whether this delivery did the work.
    #[must_use]
    pub const fn is_processed(&self) -> bool {
        matches!(self, Self::Processed(_))
    }

    /// Whether an earlier delivery of the same message had done the work: [`Duplicate`](Self::Duplicate) or
    /// [`Replayed`](Self::Replayed).
    #[must_use]
    pub const fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate(_) | Self::Replayed(_))
    }

    /// What the body returned, now or in the delivery that is replayed.
    #[must_use]
    pub fn value(self) -> Option<T> {
        match self {
            Self::Processed(value) | Self::Replayed(value) => Some(value),
            Self::Duplicate(_) | Self::Stale(_) | Self::Expired(_) => None,
        }
    }

    /// `"processed"`, `"replayed"`, `"duplicate"`, `"stale"` or `"expired"`: for logs and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Processed(_) => "processed",
            Self::Replayed(_) => "replayed",
            Self::Duplicate(_) => "duplicate",
            Self::Stale(_) => "stale",
            Self::Expired(_) => "expired",
        }
    }
}

/// Declares a type that says which message it is about.
macro_rules! about_a_message {
    ($(#[$meta:meta])* $name:ident, $consumer:literal) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name(pub(crate) Identity);

        impl $name {
            #[doc = $consumer]
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
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.debug(f, stringify!($name))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

about_a_message!(
    /// A message whose claim was already there.
    Duplicate,
    "The consumer that has processed the message."
);

about_a_message!(
    /// A message that is older than its consumer's retention. See [`Error::Expired`](crate::Error::Expired).
    Expired,
    "The consumer that would have processed the message."
);

about_a_message!(
    /// A message whose key came before with another content. See
    /// [`Error::FingerprintMismatch`](crate::Error::FingerprintMismatch).
    FingerprintMismatch,
    "The consumer that has processed the first message of this key."
);

about_a_message!(
    /// A message that says it is from the future. See [`Error::OccurredInFuture`](crate::Error::OccurredInFuture).
    OccurredInFuture,
    "The consumer that would have processed the message."
);

about_a_message!(
    /// A message that another delivery is processing. See [`Error::InProgress`](crate::Error::InProgress).
    InProgress,
    "The consumer that is processing the message."
);

/// What makes two deliveries one message: consumer, sender and key, in their stored forms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) consumer: Cow<'static, str>,
    pub(crate) sender: Cow<'static, str>,
    pub(crate) key: Cow<'static, str>,
}

impl Identity {
    /// As if the type of this name had the three fields itself.
    pub(crate) fn debug(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let Self { consumer, sender, key } = self;
        f.debug_struct(name).field("consumer", consumer).field("sender", sender).field("key", key).finish()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, sender, key } = self;
        if key.is_empty() {
            write!(f, "a message of consumer `{consumer}`")
        } else if sender.is_empty() {
            write!(f, "`{key}` of consumer `{consumer}`")
        } else {
            write!(f, "`{key}` from sender `{sender}` of consumer `{consumer}`")
        }
    }
}
