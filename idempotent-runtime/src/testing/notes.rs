//! What the runtime tells the kit about a delivery, whatever error type its handler has.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a delivery came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note {
    /// Its transaction was lost.
    Lost,
    /// The message was too old.
    Expired,
}

/// What was noted of one delivery.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notes {
    pub(super) lost: bool,
    pub(super) expired: bool,
}

thread_local! {
    /// Of the delivery that is being polled on this thread.
    static NOTES: Cell<Notes> = const { Cell::new(Notes { lost: false, expired: false }) };
}

pub(crate) fn note(note: Note) {
    let mut notes = NOTES.get();
    match note {
        Note::Lost => notes.lost = true,
        Note::Expired => notes.expired = true,
    }
    NOTES.set(notes);
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
        Self { future: Box::pin(future), stop, notes: Notes::default() }
    }
}

impl<F: Future, S: FnMut() -> bool + Unpin> Future for Watched<F, S> {
    type Output = (Option<F::Output>, Notes);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let around = NOTES.replace(self.notes);
        let polled = self.future.as_mut().poll(context);
        self.notes = NOTES.replace(around);
        match polled {
            Poll::Ready(output) => Poll::Ready((Some(output), self.notes)),
            Poll::Pending if (self.stop)() => Poll::Ready((None, self.notes)),
            Poll::Pending => Poll::Pending,
        }
    }
}
