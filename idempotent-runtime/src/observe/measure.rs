//! Metrics through the `metrics` facade; without the feature, nothing that is left after compiling.

/// Deliveries, by what they led to.
#[cfg(feature = "metrics")]
const MESSAGES: &str = "idempotent_messages_total";
/// Deliveries that the seen cache knew.
pub(super) const SEEN_CACHE_HITS: &str = "idempotent_seen_cache_hits_total";
/// Attempts that ended in an error.
#[cfg(feature = "metrics")]
const FAILURES: &str = "idempotent_failures_total";
/// Conflicts while claiming.
pub(super) const CLAIM_CONFLICTS: &str = "idempotent_claim_conflicts_total";
/// Bodies that ran again.
pub(super) const RETRIES: &str = "idempotent_retries_total";

#[cfg(feature = "metrics")]
pub(crate) use on::Timer;
#[cfg(feature = "metrics")]
pub use on::describe_metrics;
#[cfg(feature = "metrics")]
pub(super) use on::{count, event, failed, purge_ended, purge_failed, purged};

#[cfg(not(feature = "metrics"))]
pub(crate) use off::Timer;
#[cfg(not(feature = "metrics"))]
pub(super) use off::{count, event, failed, purge_ended, purge_failed, purged};

#[cfg(feature = "metrics")]
mod on {
    use std::collections::HashSet;
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant, SystemTime};

    use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

    use super::{CLAIM_CONFLICTS, FAILURES, MESSAGES, RETRIES, SEEN_CACHE_HITS};
    use crate::database::TableName;

    const CLAIM_DURATION: &str = "idempotent_claim_duration_seconds";
    const HANDLER_DURATION: &str = "idempotent_handler_duration_seconds";
    const PURGE_FAILURES: &str = "idempotent_purge_failures_total";
    const PURGED: &str = "idempotent_purged_claims_total";
    const LAST_PURGE: &str = "idempotent_last_purge_timestamp_seconds";
    const OLDEST_EXPIRY: &str = "idempotent_oldest_claim_expiry_timestamp_seconds";

    /// Gives the recorder that is installed the help text and the unit of every metric of this library. Call it once,
    /// after installing the recorder.
    pub fn describe_metrics() {
        describe_counter!(
            MESSAGES,
            Unit::Count,
            "Messages that came to an outcome, by what it is; of a batch, its items."
        );
        describe_counter!(
            FAILURES,
            Unit::Count,
            "Deliveries, and runs of bodies that are tried again, that ended in an error, by its kind."
        );
        describe_counter!(PURGE_FAILURES, Unit::Count, "Purges of the janitor that ended in an error.");
        describe_counter!(SEEN_CACHE_HITS, Unit::Count, "Duplicates that the seen cache knew, without the database.");
        describe_counter!(CLAIM_CONFLICTS, Unit::Count, "Conflicts while claiming, which were tried again.");
        describe_counter!(RETRIES, Unit::Count, "Bodies that ran again after a transient error.");
        describe_histogram!(CLAIM_DURATION, Unit::Seconds, "From asking for a connection until the claim is judged.");
        describe_histogram!(HANDLER_DURATION, Unit::Seconds, "How long bodies ran, without claim and commit.");
        describe_counter!(PURGED, Unit::Count, "Claims that purges have deleted.");
        describe_gauge!(LAST_PURGE, Unit::Seconds, "When the last purge of this process ended, as a Unix timestamp.");
        describe_gauge!(
            OLDEST_EXPIRY,
            Unit::Seconds,
            "Expiry of the oldest claim that the last purge of this process has left, as a Unix timestamp."
        );
    }

    pub(in crate::observe) fn count(consumer: &str, sender: &str, outcome: &'static str) {
        let labels =
            [("consumer", consumer.to_owned()), ("sender", sender_label(sender)), ("outcome", outcome.to_owned())];
        counter!(MESSAGES, &labels).increment(1);
    }

    pub(in crate::observe) fn event(name: &'static str, consumer: &'static str) {
        counter!(name, "consumer" => consumer).increment(1);
    }

    pub(in crate::observe) fn failed(consumer: &'static str, kind: &'static str) {
        counter!(FAILURES, "consumer" => consumer, "kind" => kind).increment(1);
    }

    pub(in crate::observe) fn purge_failed(table: &TableName) {
        counter!(PURGE_FAILURES, "table" => table.to_string()).increment(1);
    }

    pub(in crate::observe) fn purged(table: &TableName, claims: u64) {
        counter!(PURGED, "table" => table.to_string()).increment(claims);
    }

    /// By this process's clock, which is what whoever scrapes it compares it with.
    pub(in crate::observe) fn purge_ended(table: &TableName, oldest: Option<SystemTime>) {
        let now = SystemTime::now();
        let of_unix = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        gauge!(LAST_PURGE, "table" => table.to_string()).set(of_unix(now).as_secs_f64());
        // Without a claim none is past its expiry.
        gauge!(OLDEST_EXPIRY, "table" => table.to_string()).set(of_unix(oldest.unwrap_or(now)).as_secs_f64());
    }

    /// How long something takes.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Timer(Instant);

    impl Timer {
        pub(crate) fn start() -> Self {
            Self(Instant::now())
        }

        /// It was a claim.
        pub(crate) fn claimed(self, consumer: &'static str) {
            histogram!(CLAIM_DURATION, "consumer" => consumer).record(self.0.elapsed());
        }

        /// It was a body.
        pub(crate) fn ran(self, consumer: &'static str) {
            histogram!(HANDLER_DURATION, "consumer" => consumer).record(self.0.elapsed());
        }
    }

    /// Senders may come from messages, and every new label value costs the metrics system a time series for ever:
    /// the first hundred keep their names.
    fn sender_label(sender: &str) -> String {
        const MOST: usize = 100;
        static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);

        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.get_or_insert_default();
        if !seen.contains(sender) {
            if seen.len() >= MOST {
                return "other".to_owned();
            }
            seen.insert(sender.to_owned());
        }
        sender.to_owned()
    }
}

#[cfg(not(feature = "metrics"))]
mod off {
    use std::time::SystemTime;

    use crate::database::TableName;

    pub(in crate::observe) const fn count(_consumer: &str, _sender: &str, _outcome: &'static str) {}

    pub(in crate::observe) const fn event(_name: &'static str, _consumer: &'static str) {}

    pub(in crate::observe) const fn failed(_consumer: &'static str, _kind: &'static str) {}

    pub(in crate::observe) const fn purge_failed(_table: &TableName) {}

    pub(in crate::observe) const fn purged(_table: &TableName, _claims: u64) {}

    pub(in crate::observe) const fn purge_ended(_table: &TableName, _oldest: Option<SystemTime>) {}

    /// Takes no room and reads no clock: the functions are evaluated by the compiler.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Timer;

    #[expect(clippy::unused_self, reason = "as the timer that measures has it")]
    impl Timer {
        pub(crate) const fn start() -> Self {
            Self
        }

        pub(crate) const fn claimed(self, _consumer: &'static str) {}

        pub(crate) const fn ran(self, _consumer: &'static str) {}
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn without_the_feature_a_timer_is_nothing() {
            // Would not compile if it read a clock.
            const TIMER: Timer = Timer::start();
            const { assert!(size_of::<Timer>() == 0) };
            const { TIMER.claimed("") };
        }
    }
}
