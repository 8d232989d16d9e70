//! The seen cache: messages that are known to be processed, kept in memory for a short time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use crate::outcome::Identity;

/// Whole identities, each with the moment when it was last known to be committed. Bounded in number: the least useful go first.
#[derive(Debug)]
pub(crate) struct Seen {
    since: Cache<Identity, Instant>,
    time_to_live: Duration,
    /// How often a claim was forgotten.
    forgotten: AtomicU64,
}

impl Seen {
    pub(crate) fn new(capacity: usize, time_to_live: Duration) -> Self {
        Self { since: Cache::new(capacity), time_to_live, forgotten: AtomicU64::new(0) }
    }

    /// What is remembered of a message whose delivery begins now.
    pub(crate) fn of<'s>(&'s self, identity: &'s Identity) -> Memory<'s> {
        Memory { seen: self, identity, forgotten: self.forgotten.load(Ordering::SeqCst) }
    }

    /// The claim is deleted.
    pub(crate) fn forget(&self, identity: &Identity) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.since.remove(identity);
    }

    /// Every claim may be deleted.
    #[cfg(feature = "testing")]
    pub(crate) fn clear(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.since.clear();
    }
}

/// What one delivery may ask, and tell, the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'s> {
    seen: &'s Seen,
    identity: &'s Identity,
    /// When it began.
    forgotten: u64,
}

impl Memory<'_> {
    pub(crate) fn is_seen(&self) -> bool {
        match self.seen.since.get(self.identity) {
            Some(since) if since.elapsed() < self.seen.time_to_live => true,
            Some(_) => {
                self.seen.since.remove(self.identity);
                false
            }
            None => false,
        }
    }

    /// The claim is committed: not before that (G12). Nothing is kept of a claim that may have been forgotten since; asked
    /// afterwards, so that a `forget` at the same moment either is seen here or comes to remove what is kept.
    pub(crate) fn keep(&self) {
        self.seen.since.insert(self.identity.clone(), Instant::now());
        if self.seen.forgotten.load(Ordering::SeqCst) != self.forgotten {
            self.seen.since.remove(self.identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(key: String) -> Identity {
        Identity { consumer: "c".into(), sender: "s".into(), key: key.into() }
    }

    #[test]
    fn it_forgets_in_time_and_when_told_and_never_grows_over_its_bound() {
        let seen = Seen::new(100, Duration::from_millis(50));
        for number in 0..10_000 {
            seen.of(&identity(number.to_string())).keep();
        }
        assert!(seen.since.len() <= 100, "{}", seen.since.len());
        let last = identity("last".to_owned());
        seen.of(&last).keep();
        assert!(seen.of(&last).is_seen() && !seen.of(&identity("other".to_owned())).is_seen());
        std::thread::sleep(Duration::from_millis(60));
        assert!(!seen.of(&last).is_seen());
        seen.of(&last).keep();
        seen.forget(&last);
        assert!(!seen.of(&last).is_seen());
    }

    #[test]
    fn what_is_forgotten_while_its_delivery_runs_is_not_remembered_when_that_ends() {
        let seen = Seen::new(100, Duration::from_mins(1));
        let (message, other) = (identity("a".to_owned()), identity("b".to_owned()));
        let running = seen.of(&message);
        seen.forget(&message);
        running.keep();
        assert!(!seen.of(&message).is_seen());
        seen.of(&message).keep();
        seen.forget(&other);
        assert!(seen.of(&message).is_seen(), "what was remembered before stays");
    }
}
