//! What a delivery comes to: of one message, or of a batch.

use std::borrow::Cow;
use std::fmt;

use crate::{Batch, ItemOutcome, Outcome};

/// What a handler's caller gets: an [`Outcome`], or the [`Batch`] of a handler with `each`.
///
/// Sealed: what the kit reads from it may change.
#[expect(private_interfaces, reason = "sealed: only the results of this crate's handlers implement it")]
#[diagnostic::on_unimplemented(
    message = "the kit cannot tell from `{Self}` what a delivery came to",
    label = "neither an `Outcome` nor a `Batch`",
    note = "let the closure return what the handler has returned: `async |n| handler(&pool, ..).await`"
)]
pub trait Delivered {
    /// What is delivered.
    #[doc(hidden)]
    const NOUN: &'static str;

    /// Whether it has items.
    #[doc(hidden)]
    const IS_BATCH: bool = false;

    /// What it came to.
    #[doc(hidden)]
    fn ended(&self) -> Ended;
}

#[expect(private_interfaces, reason = "sealed: see the trait")]
impl<T> Delivered for Outcome<T> {
    const NOUN: &'static str = "message";

    fn ended(&self) -> Ended {
        let told = Cow::Borrowed(self.as_str());
        match self {
            Self::Processed(_) => Ended::Processed(told),
            Self::Duplicate(_) | Self::Replayed(_) => Ended::Duplicate(told),
            Self::Stale(_) => Ended::Stale(told),
            Self::Expired(_) => Ended::Expired(told),
        }
    }
}

/// It is what the most telling of its items is: one that is processed has run the body.
#[expect(private_interfaces, reason = "sealed: see the trait")]
impl<T> Delivered for Batch<T> {
    const NOUN: &'static str = "batch";
    const IS_BATCH: bool = true;

    fn ended(&self) -> Ended {
        const ORDER: [ItemOutcome; 4] =
            [ItemOutcome::Processed, ItemOutcome::Stale, ItemOutcome::Duplicate, ItemOutcome::Expired];
        let counts: Vec<_> = ORDER.into_iter().map(|of| (of, self.count(of))).filter(|(_, count)| *count > 0).collect();
        let told: Vec<_> = counts.iter().map(|(of, count)| format!("{count} {}", of.as_str())).collect();
        let told = told.join(", ").into();
        match counts.first() {
            None => Ended::Empty,
            Some((ItemOutcome::Processed, _)) => Ended::Processed(told),
            Some((ItemOutcome::Stale, _)) => Ended::Stale(told),
            Some((ItemOutcome::Duplicate, _)) => Ended::Duplicate(told),
            Some((ItemOutcome::Expired, _)) => Ended::Expired(told),
        }
    }
}

/// What a delivery came to, without its value. The texts count a batch's items.
#[derive(Debug)]
pub(super) enum Ended {
    /// The body has run.
    Processed(Cow<'static, str>),
    /// An earlier delivery had done the work, as a claim says.
    Duplicate(Cow<'static, str>),
    /// The same, as a position says.
    Stale(Cow<'static, str>),
    Expired(Cow<'static, str>),
    /// A batch of nothing.
    Empty,
    Failed(String),
    /// It was broken off.
    Dropped,
}

impl Ended {
    pub(super) const fn is_processed(&self) -> bool {
        matches!(self, Self::Processed(_))
    }

    pub(super) const fn is_recognised(&self) -> bool {
        matches!(self, Self::Duplicate(_) | Self::Stale(_))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processed(told) | Self::Duplicate(told) | Self::Stale(told) | Self::Expired(told) => {
                f.write_str(told)
            }
            Self::Empty => f.write_str("without items"),
            Self::Failed(error) => write!(f, "failed ({error})"),
            Self::Dropped => f.write_str("broken off"),
        }
    }
}

/// What is delivered: the same number is the same message, or the same batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered {
    pub(super) noun: &'static str,
    pub(super) number: u64,
}

impl fmt::Display for Numbered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.noun, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_as_the_most_telling_of_its_items_and_counts_them_all() {
        use ItemOutcome::{Duplicate, Expired, Processed, Stale};
        let ended = |outcomes: &[ItemOutcome]| Batch { output: None::<()>, outcomes: outcomes.to_vec() }.ended();
        let partly = ended(&[Duplicate, Processed, Duplicate, Stale]);
        assert!(partly.is_processed() && partly.to_string() == "1 processed, 1 stale, 2 duplicate", "{partly}");
        assert!(matches!(ended(&[Duplicate, Expired, Stale]), Ended::Stale(_)));
        assert!(matches!(ended(&[Expired, Duplicate]), Ended::Duplicate(_)));
        assert!(matches!(ended(&[Expired, Expired]), Ended::Expired(_)));
        assert!(matches!(ended(&[]), Ended::Empty));
    }
}
