//! A type of the user that is no part of a key yet.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: Own,
}

struct Own(u64);

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
