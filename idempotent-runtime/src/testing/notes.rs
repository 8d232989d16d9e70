//! What the kit and the runtime tell each other about a delivery, whatever error type its handler has.

use std::any::Any;
use std::cell::RefCell;
use std::mem::swap;
use std::pin::Pin;
use std::task::{Context, Poll};

use sqlx::Transaction;

use super::state::Tables;
use crate::error::TransactionLost;
use crate::{Database, ItemOutcome};

/// What a delivery came to.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// Its transaction was lost.
    Lost(TransactionLost),
    /// The message was too old.
    Expired,
}

/// What was noted of one delivery, and what it is to meet.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) lost: Option<TransactionLost>,
    pub(super) expired: bool,
    /// How many commits succeed before all others fail; `None`: all succeed.
    commits: Option<usize>,
    /// A commit has been made to fail.
    pub(super) uncommitted: bool,
    /// Of a batch, the body gets this one of its fresh items only.
    alone: Option<usize>,
    /// How many items of a batch were fresh.
    pub(super) fresh: usize,
    /// A [`Look`] into the transaction whose commit is made to fail, and what it sees.
    look: Option<Box<dyn Any + Send>>,
    pub(super) inside: Option<Tables>,
}

/// Looks at the tables from inside a transaction.
pub(super) type Look<DB> = Box<
    dyn for<'c> FnOnce(
            &'c mut <DB as sqlx::Database>::Connection,
        ) -> Pin<Box<dyn Future<Output = Result<Tables, sqlx::Error>> + Send + 'c>>
        + Send,
>;

impl Notes {
    const NONE: Self = Self {
        lost: None,
        expired: false,
        commits: None,
        uncommitted: false,
        alone: None,
        fresh: 0,
        look: None,
        inside: None,
    };
}

thread_local! {
    /// Of the delivery that is being polled on this thread.
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes::NONE) };
}

pub(crate) fn note(note: Note) {
    NOTES.with_borrow_mut(|notes| match note {
        Note::Lost(lost) => notes.lost = Some(lost),
        Note::Expired => notes.expired = true,
    });
}

/// Whether the commit that is due now has to fail. Each one that asks is counted.
pub(crate) fn refuses_commit() -> bool {
    NOTES.with_borrow_mut(|notes| {
        match &mut notes.commits {
            None => {}
            Some(0) => notes.uncommitted = true,
            Some(left) => *left -= 1,
        }
        notes.uncommitted
    })
}

/// Looks at what the commit would have made visible, if the kit wants that.
pub(crate) async fn looked_into<DB: Database>(mut transaction: Transaction<'_, DB>) -> Transaction<'_, DB> {
    let look = NOTES.with_borrow_mut(|notes| notes.look.take()).and_then(|look| look.downcast::<Look<DB>>().ok());
    if let Some(look) = look {
        // Of a transaction that was lost there is nothing to see.
        let inside = look(&mut transaction).await.ok();
        NOTES.with_borrow_mut(|notes| notes.inside = inside);
    }
    transaction
}

/// The items of a batch as its body is to find them.
pub(crate) fn withheld(mut outcomes: Vec<ItemOutcome>) -> Vec<ItemOutcome> {
    NOTES.with_borrow_mut(|notes| {
        let fresh = outcomes.iter_mut().filter(|outcome| **outcome == ItemOutcome::Processed);
        notes.fresh = 0;
        for outcome in fresh {
            if notes.alone.is_some_and(|alone| alone != notes.fresh) {
                *outcome = ItemOutcome::Duplicate;
            }
            notes.fresh += 1;
        }
    });
    outcomes
}

/// While it lives, notes are those of one delivery. A poll that panics gives them back too.
struct Noting<'n>(&'n mut Notes);

impl<'n> Noting<'n> {
    fn in_place_of_others(notes: &'n mut Notes) -> Self {
        NOTES.with_borrow_mut(|others| swap(others, notes));
        Self(notes)
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        NOTES.with_borrow_mut(|notes| swap(notes, self.0));
    }
}

/// A delivery that is broken off at the first await at which `stop` says so, and what is noted meanwhile. `None`: it was
/// not at its end by then.
pub(super) struct Watched<F, S> {
    future: Pin<Box<F>>,
    stop: S,
    notes: Notes,
}

impl<F: Future, S: FnMut() -> bool + Unpin> Watched<F, S> {
    pub(super) fn new(future: F, stop: S) -> Self {
        Self { future: Box::pin(future), stop, notes: Notes::NONE }
    }

    /// Lets every commit after so many fail.
    pub(super) fn commits(mut self, commits: usize) -> Self {
        self.notes.commits = Some(commits);
        self
    }

    /// Lets every commit fail, but looks at what it would have made visible. With `alone` a batch's body is given that
    /// one of its fresh items only, as if an earlier batch had had the others.
    pub(super) fn looks<DB: Database>(mut self, look: Look<DB>, alone: Option<usize>) -> Self {
        self.notes = Notes { commits: Some(0), alone, look: Some(Box::new(look)), ..Notes::NONE };
        self
    }
}

impl<F: Future, S: FnMut() -> bool + Unpin> Future for Watched<F, S> {
    type Output = (Option<F::Output>, Notes);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { future, stop, notes } = &mut *self;
        let noting = Noting::in_place_of_others(notes);
        let polled = future.as_mut().poll(context);
        drop(noting);
        let ended = match polled {
            Poll::Ready(output) => Some(output),
            Poll::Pending if stop() => None,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready((ended, std::mem::replace(notes, Notes::NONE)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{poll_fn, ready};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Waker;

    use super::*;

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn only_the_delivery_that_is_being_polled_is_refused_its_commits_and_those_after_a_number_of_them() {
        let commits = |n: usize| (0..n).map(|_| refuses_commit()).collect::<Vec<_>>();
        let mut refused = Watched::new(async { commits(3) }, || false).commits(1);
        let mut another = Watched::new(ready(()), || false);
        assert!(poll(&mut another).is_ready() && !refuses_commit());
        let Poll::Ready((ended, notes)) = poll(&mut refused) else { panic!("it awaits nothing") };
        assert_eq!((ended, notes.uncommitted), (Some(vec![false, true, true]), true));
        assert!(!refuses_commit());
    }

    #[test]
    fn a_delivery_that_panics_leaves_no_notes_behind() {
        let panics = poll_fn(|_| -> Poll<()> {
            assert!(refuses_commit());
            note(Note::Expired);
            panic!("on purpose")
        });
        let mut delivery = Watched::new(panics, || false).commits(0);
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut delivery))).is_err());
        assert!(!refuses_commit() && !NOTES.with_borrow(|notes| notes.expired));
    }
}
