//! What is logged and counted.

use crate::database::Statements;
use crate::error::TransactionLost;
use crate::outcome::Identity;
use crate::sequence::Position;
use crate::{Error, PurgeEnd, Purged};

/// A duplicate is acknowledged, logged at info, and counted per consumer and sender (G8).
pub(crate) fn duplicate(identity: &Identity) {
    tracing::info!(
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "duplicate: an earlier delivery has done the work"
    );
    count(&identity.consumer, &identity.sender, "duplicate");
}

pub(crate) fn processed(identity: &Identity) {
    count(&identity.consumer, &identity.sender, "processed");
}

/// A duplicate that was answered with the first answer.
pub(crate) fn replayed(identity: &Identity) {
    tracing::info!(
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "replayed: an earlier delivery has done the work, and its value is given again"
    );
    count(&identity.consumer, &identity.sender, "replayed");
}

pub(crate) fn stale(position: &Position) {
    tracing::info!(
        consumer = position.consumer,
        sender = &*position.sender,
        entity = &*position.entity,
        number = position.number,
        "stale: a newer message of the entity, or this very one, was applied before"
    );
    count(position.consumer, &position.sender, "stale");
}

/// Louder than a duplicate: after an outage it is no duplicate at all.
pub(crate) fn expired(identity: &Identity) {
    tracing::warn!(
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "expired: the message is older than the retention, so nobody can tell whether it was processed"
    );
    count(&identity.consumer, &identity.sender, "expired");
}

pub(crate) fn mismatch(identity: &Identity) {
    tracing::warn!(
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "fingerprint mismatch: the key came before with another content"
    );
    count(&identity.consumer, &identity.sender, "mismatch");
}

pub(crate) fn unclaimed(consumer: &'static str) {
    tracing::debug!(consumer, "processed without a claim: a part of the key is missing");
    count(consumer, "", "unclaimed");
}

/// A duplicate that the seen cache knew.
pub(crate) fn seen(consumer: &'static str) {
    event("idempotent_seen_cache_hits_total", consumer);
}

/// A conflict while claiming, which is tried again.
pub(crate) fn conflict(consumer: &'static str) {
    tracing::debug!(consumer, "conflict while claiming: trying again");
    event("idempotent_claim_conflicts_total", consumer);
}

/// A body that runs again.
pub(crate) fn retried(consumer: &'static str) {
    tracing::debug!(consumer, "transient error: running again");
    event("idempotent_retries_total", consumer);
}

#[cfg(feature = "metrics")]
fn event(name: &'static str, consumer: &'static str) {
    metrics::counter!(name, "consumer" => consumer).increment(1);
}

#[cfg(not(feature = "metrics"))]
const fn event(_name: &'static str, _consumer: &'static str) {}

pub(crate) fn lost(lost: &TransactionLost) {
    if lost.kept {
        tracing::error!("{lost}");
    } else {
        tracing::warn!("{lost}");
    }
}

/// One batch of a purge is through.
pub(crate) fn purged(statements: &Statements, claims: u64) {
    tracing::trace!(table = %statements.table, claims, "purged a batch");
}

/// The janitor has purged.
pub(crate) fn janitor_purged(statements: &Statements, purged: &Purged) {
    let Purged { deleted, batches, end, .. } = *purged;
    let table = &statements.table;
    match end {
        PurgeEnd::OutOfTime => tracing::warn!(
            %table, deleted, batches, "the purge ran out of time: claims expire faster than they are deleted"
        ),
        PurgeEnd::Finished | PurgeEnd::Stopped if deleted == 0 => {
            tracing::debug!(%table, deleted, batches, ?end, "nothing to purge");
        }
        PurgeEnd::Finished | PurgeEnd::Stopped => tracing::info!(%table, deleted, batches, ?end, "purged"),
    }
}

/// Another instance's janitor is active.
pub(crate) fn janitor_skipped(statements: &Statements) {
    tracing::debug!(table = %statements.table, "another instance is purging");
}

/// The janitor could not purge, and tries again after its interval.
pub(crate) fn janitor_failed(statements: &Statements, error: &Error) {
    tracing::warn!(table = %statements.table, "the purge has failed, and is tried again after the interval: {error}");
}

#[cfg(feature = "metrics")]
fn count(consumer: &str, sender: &str, outcome: &'static str) {
    let labels = [("consumer", consumer.to_owned()), ("sender", sender_label(sender)), ("outcome", outcome.to_owned())];
    metrics::counter!("idempotent_messages_total", &labels).increment(1);
}

#[cfg(not(feature = "metrics"))]
const fn count(_consumer: &str, _sender: &str, _outcome: &'static str) {}

/// Senders may come from messages, and every new label value costs the metrics system a time series for ever:
/// the first hundred keep their names.
#[cfg(feature = "metrics")]
fn sender_label(sender: &str) -> String {
    use std::collections::HashSet;
    use std::sync::{Mutex, PoisonError};

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
