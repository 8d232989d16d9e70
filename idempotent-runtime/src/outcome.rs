//! What one delivery led to.

use std::borrow::Cow;
use std::fmt;

/// What one delivery led to. Every variant means: acknowledge the message.
///
/// Not `#[must_use]`: `handler(&pool, &event).await?;` is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The body ran, its transaction was alive when it returned, and claim and effect are committed
    /// (of a joined handler: they hold once the caller commits).
    Processed(T),
    /// An earlier delivery of the same message did the work.
    Duplicate(Duplicate),
}

impl<T> Outcome<T> {
    /// Whether this delivery did the work.
    #[must_use]
    pub const fn is_processed(&self) -> bool {
        matches!(self, Self::Processed(_))
    }

    /// Whether an earlier delivery had done the work.
    #[must_use]
    pub const fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate(_))
    }

    /// What the body returned, if this delivery ran it.
    #[must_use]
    pub fn value(self) -> Option<T> {
        match self {
            Self::Processed(value) => Some(value),
            Self::Duplicate(_) => None,
        }
    }

    /// `"processed"` or `"duplicate"`: for logs and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Processed(_) => "processed",
            Self::Duplicate(_) => "duplicate",
        }
    }
}

/// A message whose claim was already there.
#[derive(Clone, PartialEq, Eq)]
pub struct Duplicate(pub(crate) Identity);

impl Duplicate {
    /// The consumer that has processed the message.
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

impl fmt::Debug for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug(f, "Duplicate")
    }
}

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
        if sender.is_empty() {
            write!(f, "`{key}` of consumer `{consumer}`")
        } else {
            write!(f, "`{key}` from sender `{sender}` of consumer `{consumer}`")
        }
    }
}
