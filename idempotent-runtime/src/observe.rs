//! What is logged and counted. The names are public: `docs/observability.md` has the tables of them.

mod measure;

use crate::claim::Claim;
use crate::database::Statements;
use crate::error::TransactionLost;
use crate::message::Message;
use crate::outcome::Identity;
use crate::sequence::Position;
use crate::{Adopted, Error, PurgeEnd, Purged};

pub(crate) use measure::Timer;
#[cfg(feature = "metrics")]
pub use measure::describe_metrics;
use measure::{count, event};

/// Of every event and span, whatever module it comes from.
const TARGET: &str = "idempotent_runtime";

/// Around a body and its commit. Nothing is computed unless somebody listens.
pub(crate) fn message(message: &Message) -> tracing::Span {
    let identity = message.claim.as_ref().map(|Claim(identity)| identity);
    let position = message.position.as_ref();
    tracing::info_span!(
        target: TARGET,
        "message",
        consumer = message.handler.consumer(),
        sender = identity.map(|identity| &*identity.sender).or_else(|| position.map(|position| &*position.sender)),
        key = identity.map(|identity| &*identity.key),
        entity = position.map(|position| &*position.entity),
        outcome = tracing::field::Empty,
    )
}

/// A duplicate is acknowledged, logged at info, and counted per consumer and sender (G8).
pub(crate) fn duplicate(identity: &Identity) {
    tracing::info!(
        target: TARGET,
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "duplicate: an earlier delivery has done the work"
    );
    count(&identity.consumer, &identity.sender, "duplicate");
}

pub(crate) fn processed(consumer: &'static str, sender: &str) {
    count(consumer, sender, "processed");
}

/// A duplicate that was answered with the first answer.
pub(crate) fn replayed(identity: &Identity) {
    tracing::info!(
        target: TARGET,
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "replayed: an earlier delivery has done the work, and its value is given again"
    );
    count(&identity.consumer, &identity.sender, "replayed");
}

pub(crate) fn stale(position: &Position) {
    tracing::info!(
        target: TARGET,
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
    #[cfg(feature = "testing")]
    crate::testing::note(crate::testing::Note::Expired);
    tracing::warn!(
        target: TARGET,
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "expired: the message is older than the retention, so nobody can tell whether it was processed"
    );
    count(&identity.consumer, &identity.sender, "expired");
}

pub(crate) fn mismatch(identity: &Identity) {
    tracing::warn!(
        target: TARGET,
        consumer = &*identity.consumer,
        sender = &*identity.sender,
        key = &*identity.key,
        "fingerprint mismatch: the key came before with another content"
    );
    count(&identity.consumer, &identity.sender, "mismatch");
}

pub(crate) fn unclaimed(consumer: &'static str) {
    tracing::debug!(target: TARGET, consumer, "processed without a claim: a part of the key is missing");
    count(consumer, "", "unclaimed");
}

/// A duplicate that the seen cache knew.
pub(crate) fn seen(consumer: &'static str) {
    event(measure::SEEN_CACHE_HITS, consumer);
}

/// A conflict while claiming, which is tried again.
pub(crate) fn conflict(consumer: &'static str) {
    tracing::debug!(target: TARGET, consumer, "conflict while claiming: trying again");
    event(measure::CLAIM_CONFLICTS, consumer);
}

/// A body that runs again.
pub(crate) fn retried(consumer: &'static str) {
    tracing::debug!(target: TARGET, consumer, "transient error: running again");
    event(measure::RETRIES, consumer);
}

/// The same around the body of a batch.
pub(crate) fn batch(consumer: &'static str, items: usize) -> tracing::Span {
    tracing::info_span!(target: TARGET, "batch", consumer, items, outcome = tracing::field::Empty)
}

/// A delivery, or a run of its body, that has ended in an error. The error itself is its caller's to log.
pub(crate) fn failed(consumer: &'static str, kind: &'static str) {
    measure::failed(consumer, kind);
}

pub(crate) fn lost(lost: &TransactionLost) {
    #[cfg(feature = "testing")]
    crate::testing::note(crate::testing::Note::Lost(lost.clone()));
    if lost.kept {
        tracing::error!(target: TARGET, "{lost}");
    } else {
        tracing::warn!(target: TARGET, "{lost}");
    }
}

/// One batch of a purge is through.
pub(crate) fn purged(statements: &Statements, claims: u64) {
    tracing::trace!(target: TARGET, table = %statements.table, claims, "purged a batch");
    measure::purged(&statements.table, claims);
}

/// A purge has come to its end, the janitor's or another.
pub(crate) fn purge_ended(statements: &Statements, purged: &Purged) {
    if purged.end != PurgeEnd::Stopped {
        measure::purge_ended(&statements.table, purged.oldest);
    }
}

/// The janitor has purged.
pub(crate) fn janitor_purged(statements: &Statements, purged: &Purged) {
    let Purged { deleted, batches, end, .. } = *purged;
    let table = &statements.table;
    match end {
        PurgeEnd::OutOfTime => tracing::warn!(
            target: TARGET,
            %table, deleted, batches, "the purge ran out of time and has left claims: give it more time, larger batches or a shorter pause"
        ),
        PurgeEnd::Finished | PurgeEnd::Stopped if deleted == 0 => {
            tracing::debug!(target: TARGET, %table, deleted, batches, ?end, "nothing to purge");
        }
        PurgeEnd::Finished | PurgeEnd::Stopped => {
            tracing::info!(target: TARGET, %table, deleted, batches, ?end, "purged");
        }
    }
}

pub(crate) fn janitor_off(statements: &Statements) {
    tracing::info!(target: TARGET, table = %statements.table, "the janitor is switched off");
}

/// A purge or an adoption that is tried again.
pub(crate) fn tried_again(error: &sqlx::Error) {
    tracing::debug!(target: TARGET, "tried again after a pause: {error}");
}

/// A page of an old table is copied.
pub(crate) fn adopting(table: &str, adopted: &Adopted) {
    tracing::debug!(target: TARGET, table, ?adopted, "adopting");
}

/// Another instance's janitor is active.
pub(crate) fn janitor_skipped(statements: &Statements) {
    tracing::debug!(target: TARGET, table = %statements.table, "another instance is purging");
}

/// The janitor could not purge, and tries again after its interval.
pub(crate) fn janitor_failed(statements: &Statements, error: &Error) {
    tracing::warn!(
        target: TARGET,
        table = %statements.table,
        "the purge has failed, and is tried again after the interval: {error}"
    );
    measure::purge_failed(&statements.table);
}
