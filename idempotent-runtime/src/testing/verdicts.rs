//! What is said of a handler that is wrong, and the usual cause.

use std::fmt;

use super::Failure;
use super::deliveries::Ended;
use super::state::{Effect, State};

pub(super) const OUTSIDE: &str = "the effect is outside the handler's transaction: its SQL runs on the pool or on a connection of its \
                       own instead of `tx`, or it stands in the code around the handler";
const SENT_EARLY: &str = "something is sent inside the handler, before the commit, and cannot be taken back: put it into an \
                          outbox table in the same transaction, or send it with `claim.idempotency_key(..)` and record it \
                          with `Recorder::record_with_key`";
pub(super) const SWALLOWED: &str =
    "the body ignores the error of a statement (`let _ =`, `.ok()`, `if let Ok`): pass it on with `?`";

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

pub(super) fn no_effect(message: u64) -> Failure {
    Failure::new(
        format_args!(
            "message {message} was processed, and no table and no recorder has changed: the test proves nothing"
        ),
        "the effect leaves every value as it was, is in a table that is left out, or is sent past the recorder",
    )
}

pub(super) fn not_processed(message: u64, ended: &Ended, lost: bool) -> Failure {
    let cause = match ended {
        _ if lost => SWALLOWED,
        Ended::Recognised(_) => {
            "messages of different numbers have the same key: make the key from the number; or their sequence does not grow"
        }
        Ended::Expired => "the message's timestamp is older than the retention",
        _ => {
            "the handler cannot process the test's message; the claim table is missing (call `migrate`); or, on SQLite, SQL of \
             the body runs on the pool instead of `tx`, and waits for its own transaction"
        }
    };
    Failure::new(format_args!("the first delivery of message {message} is {ended}, and was to do the work"), cause)
}

pub(super) fn not_recognised(message: u64, ended: &Ended, claims: &[[String; 3]]) -> Failure {
    let what = format!("a later delivery of message {message} is {ended}, and was to be recognised");
    match claims {
        [first, second, ..] => {
            let [first, second] = [first, second].map(|[consumer, sender, key]| match sender.as_str() {
                "" => format!("`{key}` of `{consumer}`"),
                sender => format!("`{key}` from `{sender}` of `{consumer}`"),
            });
            Failure::new(
                format_args!("{what}\n  its claims: {first}\n              {second}"),
                "a part of the key is made on delivery: a fresh id, a receipt handle, the time. Take the id that the sender \
                 gave the message",
            )
        }
        [] if matches!(ended, Ended::Processed) => Failure::new(
            format_args!("{what}; it has no claim"),
            "the message has no key, and `missing = \"process\"` lets it run without a claim; or the claim is in another table: \
             `Kit::of(&store)`",
        ),
        _ => {
            Failure::new(what, "the key or the sender changes from delivery to delivery, or the claim is not committed")
        }
    }
}
