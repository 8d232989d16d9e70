//! What is said of a handler that is wrong, and the usual cause.

use std::fmt;
use std::time::Duration;

use super::Failure;
use super::delivered::{Ended, Numbered};
use super::state::{Effect, State};
use crate::error::TransactionLost;

pub(super) const OUTSIDE: &str = "the effect is outside the handler's transaction: its SQL runs on the pool or on a connection of its \
                       own instead of `tx`, or it stands in the code around the handler";
const SENT_EARLY: &str = "something is sent inside the handler, before the commit, and cannot be taken back: put it into an \
                          outbox table in the same transaction, or send it with `claim.idempotency_key(..)` and record it \
                          with `Recorder::record_with_key`";
pub(super) const SWALLOWED: &str =
    "the body ignores the error of a statement (`let _ =`, `.ok()`, `if let Ok`): pass it on with `?`";

/// Of a transaction that was lost without the kit's doing.
const LOST: &str = "the body ignores the error of a statement (`let _ =`, `.ok()`, `if let Ok`): pass it on with `?`; or it sends \
                    COMMIT or ROLLBACK itself: leave that to the handler";
const COMMITTED: &str = "the body sends COMMIT, or a statement that commits by itself, as CREATE TABLE does on MariaDB and MySQL: \
                         the handler commits once the body has returned";

/// That nothing has changed.
pub(super) fn nothing(before: &State, after: &State, what: fmt::Arguments<'_>) -> Result<(), Failure> {
    match after.changes_since(before) {
        None => Ok(()),
        Some(changes) => Err(Failure::new(format_args!("{what} has changed:{changes}"), cause(before, after))),
    }
}

/// That no more has happened than one delivery does.
pub(super) fn one_effect(
    effect: &Effect,
    before: &State,
    after: &State,
    what: fmt::Arguments<'_>,
) -> Result<(), Failure> {
    match effect.exceeded(before, after) {
        None => Ok(()),
        Some(more) => Err(Failure::new(format_args!("{what} had more than one effect:{more}"), cause(before, after))),
    }
}

fn cause(before: &State, after: &State) -> &'static str {
    if after.sent.plain > before.sent.plain { SENT_EARLY } else { OUTSIDE }
}

/// `claimed`: a claim or a position is there.
pub(super) fn no_effect(message: Numbered, claimed: bool) -> Failure {
    Failure::new(
        format_args!("{message} was processed, and no table and no recorder has changed: the test proves nothing"),
        if claimed {
            "the effect leaves every value as it was, is in a table that is left out, or is sent past the recorder"
        } else {
            "the caller's transaction was not committed: there is no claim either. Or the message needs none, and the effect \
             leaves every value as it was, is in a table that is left out, or is sent past the recorder"
        },
    )
}

pub(super) fn not_processed(message: Numbered, ended: &Ended, lost: Option<&TransactionLost>) -> Failure {
    let cause = match ended {
        _ if lost.is_some_and(TransactionLost::claim_kept) => COMMITTED,
        _ if lost.is_some() => LOST,
        Ended::Duplicate(_) | Ended::Stale(_) => {
            "messages of different numbers have the same key: make the key from the number; or their sequence does not grow"
        }
        Ended::Empty => "the closure delivers a batch of nothing",
        Ended::Expired(_) => "the message's timestamp is older than the retention",
        Ended::Failed(_) if message.noun == "batch" => {
            "the handler cannot process the test's batch; where batches overlap, it works on old items too, which it is not \
             given; the claim table is missing (call `migrate`); or, on SQLite, SQL of the body runs on the pool instead of \
             `tx`, and waits for its own transaction"
        }
        _ => {
            "the handler cannot process the test's message; the claim table is missing (call `migrate`); or, on SQLite, SQL of \
             the body runs on the pool instead of `tx`, and waits for its own transaction"
        }
    };
    Failure::new(format_args!("the first delivery of {message} is {ended}, and was to do the work"), cause)
}

pub(super) fn not_processed_again(message: Numbered, place: &str, redelivered: &Ended) -> Failure {
    Failure::new(
        format_args!("{message} failed {place}; its redelivery is {redelivered}, and was to do the work"),
        "the claim was committed although the delivery failed: is it made with `ClaimStore::claim`, in a transaction of its \
         own?",
    )
}

pub(super) fn endless(message: Numbered, patience: Duration) -> Failure {
    Failure::new(
        format_args!("the delivery of {message} did not end within {patience:?}"),
        "SQL of the body runs on the pool instead of `tx`, and waits for a lock of its own transaction, or for a connection; \
         the body waits for what the test does not provide; or the closure delivers by itself until it succeeds: let it \
         return the error, since the kit delivers again. If it takes so long: `Kit::patience`",
    )
}

/// The commit was made to fail.
pub(super) fn hidden(message: Numbered, ended: &Ended) -> Failure {
    Failure::new(
        format_args!("the commit of {message} failed, and yet the delivery is {ended}"),
        "the code around the handler takes the handler's error for success, and the message would be acknowledged and lost: \
         pass the error on with `?`",
    )
}

pub(super) fn all_items<'t>(batch: Numbered, fresh: usize, tables: impl Iterator<Item = &'t str>) -> Failure {
    let tables: Vec<_> = tables.map(|table| format!("`{table}`")).collect();
    Failure::new(
        format_args!(
            "{batch} has the same effect on {} with one of its items fresh as with {fresh}",
            tables.join(", ")
        ),
        "the body works on the items that were passed to its caller, and not on the parameter of `each`, which has the fresh \
         ones. If its effect is meant to be the same whatever its items are, call the other methods one by one",
    )
}

pub(super) fn no_table(unknown: &str, tables: impl Iterator<Item = String>) -> Failure {
    let tables: Vec<_> = tables.map(|table| format!("`{table}`")).collect();
    Failure::new(
        format_args!("there is no table `{unknown}` to leave out; there are {}", tables.join(", ")),
        "a slip of the pen in `without_table`; on PostgreSQL a table outside the schema `public` is given as `schema.table`",
    )
}

/// With a claim of the first delivery, and one that the later delivery has made.
pub(super) fn not_recognised(
    message: Numbered,
    ended: &Ended,
    first: Option<[String; 3]>,
    later: Option<[String; 3]>,
) -> Failure {
    let what = format!("a later delivery of {message} is {ended}, and was to be recognised");
    match (first, later) {
        (Some(first), Some(later)) => {
            let [first, later] = [first, later].map(|[consumer, sender, key]| match sender.as_str() {
                "" => format!("`{key}` of `{consumer}`"),
                sender => format!("`{key}` from `{sender}` of `{consumer}`"),
            });
            Failure::new(
                format_args!("{what}\n  claimed at first: {first}\n  claimed later:    {later}"),
                "a part of the key is made on delivery: a fresh id, a receipt handle, the time. Take the id that the sender \
                 gave the message",
            )
        }
        (_, None) if ended.is_processed() => Failure::new(
            format_args!("{what}; what was processed again has no claim"),
            "the message has no key, and `missing = \"process\"` lets it run without a claim; or the claim is in another table: \
             `Kit::of(&store)`",
        ),
        _ => {
            Failure::new(what, "the key or the sender changes from delivery to delivery, or the claim is not committed")
        }
    }
}

pub(super) fn still_recognised(message: Numbered, ended: &Ended) -> Failure {
    Failure::new(
        format_args!("{message} is {ended}, although every claim of the kit's store was purged"),
        "the claim is in another table, or the seen cache of another store remembers it: `Kit::of(&store)` with the \
         handler's own store",
    )
}
