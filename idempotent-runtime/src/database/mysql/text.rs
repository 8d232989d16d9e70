//! The text of the statements that begin, claim and advance.

use std::fmt::Write as _;
use std::time::Duration;

use crate::catalog::Isolation;
use crate::database::{Admission, NewClaim, Occurred};
use crate::sequence::Position;

/// Of the next transaction alone.
pub(super) fn isolated(isolation: Option<Isolation>) -> String {
    isolation.map_or_else(String::new, |level| format!("SET TRANSACTION ISOLATION LEVEL {}; ", level.as_str()))
}

/// Whether [`write_statements`] has anything to write.
pub(super) fn writes_at_once(admission: Admission<'_>) -> bool {
    admission.claim.is_some() || (admission.position.is_some() && admission.occurred.is_none())
}

/// Appends the statements that claim and advance. Values stand in them as hexadecimal digits and numbers, so no byte of a message is
/// SQL text; in a request of several statements there are no parameters. Where the message's age is to be judged, that comes first.
pub(super) fn write_statements(request: &mut String, admission: Admission<'_>) {
    let Admission { statements, claim, occurred, position, .. } = admission;
    let wait = admission.wait();
    if let Some(NewClaim { identity, fingerprint }) = claim {
        insert(request, wait);
        request.push_str(statements.claim.as_str());
        for value in [&identity.consumer, &identity.sender, &identity.key] {
            ascii(request, value);
        }
        match fingerprint {
            Some(fingerprint) => hex(request, fingerprint),
            None => request.push_str("NULL"),
        }
        let _ = match occurred {
            Some(Occurred { expires, .. }) => write!(request, ", {})", moment(expires)),
            None => {
                write!(request, ", UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND)", admission.retention.as_micros())
            }
        };
    }
    if let Some(position) = position.filter(|_| occurred.is_none()) {
        advance(request, admission, position);
    }
}

pub(super) fn advance(request: &mut String, admission: Admission<'_>, position: &Position) {
    let Position { consumer, sender, entity, number } = position;
    let mut values = String::new();
    for value in [*consumer, sender, entity] {
        ascii(&mut values, value);
    }
    let _ = write!(values, "{number}, UTC_TIMESTAMP(6)");
    insert(request, admission.wait());
    request.push_str(&admission.statements.advance.as_str().replace('?', &values));
}

/// The start of a statement that waits so long for a lock. MariaDB bounds the wait of one statement with SET STATEMENT, MySQL
/// with a hint, and each takes the other's for a comment. In whole seconds.
pub(in crate::database) fn waiting(wait: Duration, verb: &str) -> String {
    let seconds = wait.as_millis().div_ceil(1000);
    format!(
        "/*M! SET STATEMENT innodb_lock_wait_timeout = {seconds} FOR */ \
         {verb} /*+ SET_VAR(innodb_lock_wait_timeout = {seconds}) */ "
    )
}

/// Appends the start of an INSERT, after the statement that is there.
fn insert(request: &mut String, wait: Duration) {
    if !request.is_empty() {
        request.push_str("; ");
    }
    request.push_str(&waiting(wait, "INSERT"));
}

fn hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push_str("X'");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('\'');
}

pub(in crate::database) fn ascii(text: &mut String, value: &str) {
    text.push_str("_ascii ");
    hex(text, value.as_bytes());
    text.push_str(", ");
}

/// In UTC, of microseconds since 1970.
pub(in crate::database) fn moment(micros: i64) -> String {
    format!("TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {micros} MICROSECOND")
}
