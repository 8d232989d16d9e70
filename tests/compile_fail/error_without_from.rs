//! The error type of the handler cannot be made from the library's.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

enum OwnError {
    Refused,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> Result<(), OwnError> {
    Err(OwnError::Refused)
}

fn main() {}
