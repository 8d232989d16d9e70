//! The seen cache: messages that are known to be processed, kept in memory for a short time.

use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use crate::outcome::Identity;

/// Whole identities, each with the moment when it was last known to be committed. Bounded in number: the least useful go first.
#[derive(Debug)]
pub(crate) struct Seen {
    since: Cache<Identity, Instant>,
    time_to_live: Duration,
}

impl Seen {
    pub(crate) fn new(capacity: usize, time_to_live: Duration) -> Self {
        Self { since: Cache::new(capacity), time_to_live }
    }

    pub(crate) fn contains(&self, identity: &Identity) -> bool {
        match self.since.get(identity) {
            Some(since) if since.elapsed() < self.time_to_live => true,
            Some(_) => {
                self.since.remove(identity);
                false
            }
            None => false,
        }
    }

    /// The claim is committed: not before that (G12).
    pub(crate) fn insert(&self, identity: &Identity) {
        self.since.insert(identity.clone(), Instant::now());
    }

    pub(crate) fn remove(&self, identity: &Identity) {
        self.since.remove(identity);
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
            seen.insert(&identity(number.to_string()));
        }
        assert!(seen.since.len() <= 100, "{}", seen.since.len());
        let last = identity("last".to_owned());
        seen.insert(&last);
        assert!(seen.contains(&last) && !seen.contains(&identity("other".to_owned())));
        std::thread::sleep(Duration::from_millis(60));
        assert!(!seen.contains(&last));
        seen.insert(&last);
        seen.remove(&last);
        assert!(!seen.contains(&last));
    }
}
